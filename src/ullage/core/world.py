"""What a cycle sees: the books, who asks for what, and who works where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ullage.core.fleet import Fleet
from ullage.model.application import DELAY_RELEASE_S, MAX_INSTANCES
from ullage.model.queue import DEFAULT_QUEUE, Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


@dataclass(frozen=True, slots=True)
class Demand:
    """An open session as the cycle sees it.

    `number` is its order of creation; `held_back` says why it gets no new executors for now (it keeps
    what it has); `waiting_since` is since when it has held nothing, or less than it deserves, for want
    of room.
    """

    session: str
    number: int
    requirement: ResourceRequirement
    pending: int = 0
    running: int = 0
    queue: str = DEFAULT_QUEUE
    application: str = "function"
    setup: str = ""
    priority: int = 0
    weight: int = 1
    batch_size: int = 1
    min_instances: int = 0
    max_instances: int | None = None
    application_max: int = MAX_INSTANCES
    delay_release_s: float = DELAY_RELEASE_S
    held_back: Code | None = None
    waiting_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether it may have new executors."""
        return self.held_back is None

    @property
    def want(self) -> int:
        """Executors asked for, in whole batches: work there is, held between minimum and maximum."""
        batch = self.batch_size
        work = self.running // batch * batch + self.pending // batch * batch
        if self.max_instances is not None:
            work = min(work, self.max_instances // batch * batch)
        return max(work, self.floor)

    @property
    def floor(self) -> int:
        """The minimum in whole batches."""
        return -(-self.min_instances // self.batch_size) * self.batch_size


class Phase(StrEnum):
    """What an executor is doing, as far as placement cares."""

    STARTING = "starting"
    VACANT = "vacant"
    BUSY = "busy"
    LEAVING = "leaving"
    IDLE = "idle"
    ENDING = "ending"


WORKING = frozenset({Phase.STARTING, Phase.VACANT, Phase.BUSY})
"""Phases in which an executor counts as held by its session; one that is leaving does not."""


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """An executor: `since` is when it entered its phase, `bound_at` when it joined its session.

    VACANT has a session and no task, LEAVING gives its session up after the running task, IDLE has
    no session, ENDING is on its way out of the node. `gang` groups the members of one batch;
    `protected_until` is when a running task may first be claimed for another session. One that leaves
    is `reclaimed` if somebody waits for it; its task is then ended after the grace, unless `spared`.
    """

    id: str
    phase: Phase
    requirement: ResourceRequirement
    session: str | None = None
    gang: str | None = None
    application: str = "function"
    setup: str = ""
    since: float = 0.0
    bound_at: float = 0.0
    delay_release_s: float = DELAY_RELEASE_S
    reclaimed: bool = False
    spared: bool = False
    protected_until: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """Facts for one cycle. `schedule` leaves `fleet` exactly as it found it."""

    fleet: Fleet
    demands: tuple[Demand, ...] = ()
    executors: tuple[ExecutorView, ...] = ()
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)

    def on_their_way(self) -> Iterator[ExecutorView]:
        """Executors whose room will be free soon: they end, or leave for somebody's sake."""
        for executor in self.executors:
            if executor.phase is Phase.ENDING or (executor.phase is Phase.LEAVING and executor.reclaimed):
                yield executor

    def leaving(self) -> dict[str, int]:
        """Executors per session that are on their way out but not gone."""
        leaving: dict[str, int] = {}
        for executor in self.executors:
            if executor.session is not None and executor.phase not in WORKING:
                leaving[executor.session] = leaving.get(executor.session, 0) + 1
        return leaving

    def held(self) -> dict[str, list[ExecutorView]]:
        """Executors per session that work for it or soon will."""
        held: dict[str, list[ExecutorView]] = {}
        for executor in self.executors:
            if executor.session is not None and executor.phase in WORKING:
                held.setdefault(executor.session, []).append(executor)
        return held
