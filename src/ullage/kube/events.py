"""Kubernetes events on pods: what `kubectl describe` shows of a decision.

Events are asynchronous: no response waits for one. Only the leader writes them, a few each second at most. An event
that does not fit into the queue, or cannot be written, is counted and dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from ullage.kube.client.changes import MANAGER, Create
from ullage.kube.client.kinds import EVENTS
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.client.objects import Pod
from ullage.kube.controller import Controller
from ullage.kube.recent import Recent
from ullage.model.claim import Claim
from ullage.model.error import UllageError

MOST_WAITING = 1000
"""Maximum number of events in the queue."""

GAP_S = 0.05
"""Seconds between two events: at most 20 each second."""

AGAIN_S = 300.0
"""Seconds for which an identical event is not written again: a scheduler that retries gets the same answer."""

_REMEMBERED = 4096
_LONGEST = 1024
"""Maximum length of a message in characters, as the API server limits it."""


class Reason(StrEnum):
    """The reason of an event. Names of HAMi's events are kept; those for cards, plugins, queues and claims are ours."""

    FILTERING_FAILED = "FilteringFailed"
    INSUFFICIENT_GPU = "InsufficientGPU"
    CARD_MISSING = "CardMissing"
    BINDING_SUCCEED = "BindingSucceed"
    BINDING_FAILED = "BindingFailed"
    ALLOCATION_FAILED = "AllocationFailed"
    WAITING = "WaitingInQueue"
    ADMITTED = "Admitted"
    NOT_PLACED = "NotPlacedInTime"
    CLAIMS_WAIT = "ClaimsWait"
    MAKES_ROOM = "MakesRoom"
    PREEMPTED = "Preempted"
    BOUND_ELSEWHERE = "CardBoundElsewhere"
    CARDS_UNKNOWN = "CardsUnknown"
    REQUEST_CHANGED = "RequestChanged"
    ANNOTATIONS_REMOVED = "AnnotationsRemoved"


_WARNINGS = frozenset(
    {
        *(Reason.FILTERING_FAILED, Reason.BINDING_FAILED, Reason.NOT_PLACED, Reason.ALLOCATION_FAILED),
        Reason.PREEMPTED,
        Reason.BOUND_ELSEWHERE,
        Reason.CARDS_UNKNOWN,
        Reason.REQUEST_CHANGED,
        Reason.ANNOTATIONS_REMOVED,
    }
)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event on a pod, or on an object of another kind with the same fields."""

    namespace: str
    pod: str
    uid: str
    reason: Reason
    message: str
    kind: str = "Pod"
    api_version: str = "v1"

    @classmethod
    def on(cls, pod: Pod, reason: Reason, message: str) -> Self:
        return cls(*pod.key, pod.metadata.uid, reason, message)

    @classmethod
    def of(cls, claim: Claim, reason: Reason, message: str) -> Self:
        return cls(claim.namespace, claim.pod, claim.pod_uid, reason, message=message)


RecordEvent = Callable[[PodEvent], None]


class EventRecorder:
    """`record` queues an event and returns at once."""

    def __init__(
        self,
        candidate: Candidate,
        *,
        clock: Callable[[], float] = clock_s,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._candidate, self._clock, self._now = candidate, clock, now
        self.controller = Controller("Event", self.reconcile, gap_s=GAP_S)
        self._recorded: Recent[PodEvent, float] = Recent(_REMEMBERED)
        self._latest: Recent[str, PodEvent] = Recent(_REMEMBERED)
        self.dropped = 0
        """Events that were not written because the queue was full or the write failed."""

    def record(self, event: PodEvent) -> None:
        """Queue an event if this process leads and has not recorded the same event recently."""
        if self._candidate.epoch is None or not event.uid:
            return
        self._latest[event.uid] = event
        if self._is_old(event):
            return
        if len(self.controller) < MOST_WAITING:
            self.controller.add(event)
        else:
            self._leave_out(event)

    def latest(self) -> dict[str, PodEvent]:
        """Return the last event of each pod by uid, for pods with recent events; nothing unless this process leads."""
        return {} if self._candidate.epoch is None else dict(self._latest)

    async def reconcile(self, event: PodEvent) -> None:
        epoch = self._candidate.epoch
        if epoch is not None:
            try:
                await self._candidate.write(epoch, Create(EVENTS, self._body(event), event.namespace))
            except UllageError:
                self._leave_out(event)

    def _leave_out(self, event: PodEvent) -> None:
        """Count a dropped event, and forget it so that it can be recorded again."""
        self.dropped += 1
        self._recorded.pop(event, None)

    def _is_old(self, event: PodEvent) -> bool:
        now, last = self._clock(), self._recorded.get(event)
        if last is not None and now - last < AGAIN_S:
            return True
        self._recorded[event] = now
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
