"""Events on pods: what people see of a decision in `kubectl describe`.

They are told beside the decisions: no answer waits for one, only the leader writes them, and no more than a few
a second. What does not fit into the queue, or cannot be written, is counted and left out.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ullage.kube.client.changes import MANAGER, Create
from ullage.kube.client.kinds import EVENTS
from ullage.kube.client.lease import Candidate, clock_s
from ullage.model.error import UllageError

MOST_WAITING = 1000
"""Events that wait to be written."""

GAP_S = 0.05
"""Between two of them: at most 20 a second."""

AGAIN_S = 300.0
"""For so long the same is not told again of a pod: a scheduler that retries asks, and is answered, alike."""

_REMEMBERED = 4096
_LONGEST = 1024
"""Characters of a message that an API server takes."""


class Reason(StrEnum):
    """What happened, by the names that HAMi's events have; what is of cards, plugins, queues and claims is ours."""

    FILTERING_FAILED = "FilteringFailed"
    INSUFFICIENT_GPU = "InsufficientGPU"
    CARD_MISSING = "CardMissing"
    BINDING_SUCCEED = "BindingSucceed"
    BINDING_FAILED = "BindingFailed"
    ALLOCATION_FAILED = "AllocationFailed"
    WAITING = "WaitingInQueue"
    LET_GO = "LetGo"
    NOT_PLACED = "NotPlacedInTime"
    CLAIMS_WAIT = "ClaimsWait"
    MAKES_ROOM = "MakesRoom"
    PREEMPTED = "Preempted"
    BOUND_ELSEWHERE = "CardBoundElsewhere"
    CARDS_UNKNOWN = "CardsUnknown"


_WARNINGS = frozenset(
    {
        *(Reason.FILTERING_FAILED, Reason.BINDING_FAILED, Reason.NOT_PLACED, Reason.ALLOCATION_FAILED),
        Reason.PREEMPTED,
        Reason.BOUND_ELSEWHERE,
        Reason.CARDS_UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event on a pod, or on an object of another kind by the same fields."""

    namespace: str
    pod: str
    uid: str
    reason: Reason
    message: str
    kind: str = "Pod"
    api_version: str = "v1"


RecordEvent = Callable[[PodEvent], None]


class EventRecorder:
    """`record` takes an event and returns at once; `run` writes them until it is cancelled."""

    def __init__(
        self,
        candidate: Candidate,
        *,
        clock: Callable[[], float] = clock_s,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._candidate, self._clock, self._now, self._pause = candidate, clock, now, pause
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(MOST_WAITING)
        self._recorded: OrderedDict[PodEvent, float] = OrderedDict()
        self.left_out = 0
        """Events that were not written, for want of room or because it failed."""

    def record(self, event: PodEvent) -> None:
        """Have it written, if this process leads and has not told it just now."""
        if self._candidate.epoch is None or not event.uid or self._is_old(event):
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._leave_out(event)

    async def run(self) -> None:
        """Write what is told."""
        while True:
            event = await self._waiting.get()
            epoch = self._candidate.epoch
            if epoch is None:
                continue
            try:
                await self._candidate.write(epoch, Create(EVENTS, self._body(event), event.namespace))
            except UllageError:
                self._leave_out(event)
            await self._pause(GAP_S)

    def _leave_out(self, event: PodEvent) -> None:
        """Whoever tells it again tells it for the first time."""
        self.left_out += 1
        self._recorded.pop(event, None)

    def _is_old(self, event: PodEvent) -> bool:
        now, last = self._clock(), self._recorded.get(event)
        if last is not None and now - last < AGAIN_S:
            return True
        self._recorded[event] = now
        self._recorded.move_to_end(event)
        if len(self._recorded) > _REMEMBERED:
            self._recorded.popitem(last=False)
        return False

    def _body(self, event: PodEvent) -> dict[str, Any]:
        time = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": event.kind, "apiVersion": event.api_version, "namespace": event.namespace}
        return {
            "metadata": {"name": f"{event.pod[:200]}.{secrets.token_hex(8)}", "namespace": event.namespace},
            "involvedObject": about | {"name": event.pod, "uid": event.uid},
            "reason": event.reason.value,
            "message": event.message[:_LONGEST],
            "type": "Warning" if event.reason in _WARNINGS else "Normal",
            "source": {"component": MANAGER},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
