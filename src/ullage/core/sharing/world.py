"""The input of a cycle: the books, the demand of sessions, and the executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation
from ullage.model.application import DELAY_RELEASE_S, MAX_INSTANCES
from ullage.model.queue import DEFAULT_QUEUE, Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


@dataclass(frozen=True, slots=True)
class Demand:
    """An open session as the cycle sees it.

    `number` is its order of creation. `held_back` says why it gets no new executors for now; it keeps those it has.
    While it is `pausing` that ends by itself soon: it keeps its entitlement and its promises. Since `waiting_since` it
    holds nothing, or less than its entitlement, for want of room. `running` counts tasks on executors that stay,
    `leaving` tasks on executors that are evicted or being ended: they need no other executor yet, and wait again if
    they do not end before.
    """

    session: str
    number: int
    requirement: ResourceRequirement
    pending: int = 0
    running: int = 0
    leaving: int = 0
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
    pausing: bool = False
    waiting_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether it may have new executors."""
        return self.held_back is None

    @property
    def competes(self) -> bool:
        """Whether it may have new executors now, or soon."""
        return self.ready or self.pausing

    @property
    def want(self) -> int:
        """Executors that it can use now, in whole batches, between minimum and maximum."""
        return self._bounded(0)

    @property
    def work(self) -> int:
        """Executors that its unfinished tasks ask for, in whole batches. An eviction does not change it."""
        return self._bounded(self.leaving)

    def _bounded(self, leaving: int) -> int:
        batch = self.batch_size
        work = self.running // batch * batch + leaving // batch * batch + self.pending // batch * batch
        if self.max_instances is not None:
            work = min(work, self.max_instances // batch * batch)
        return max(work, self.floor)

    @property
    def floor(self) -> int:
        """The minimum in whole batches."""
        return -(-self.min_instances // self.batch_size) * self.batch_size


class Cause(StrEnum):
    """Why an executor is evicted. `SHARE`: its session holds more than its entitlement, and the winner less.

    `LIMIT`: as above, below a limit that both share. `OVERDUE`: the winner waits longer than `reserve_after_s`.
    """

    SHARE = "share"
    LIMIT = "limit"
    OVERDUE = "overdue"


EVICTIONS: dict[Cause, str] = {
    Cause.SHARE: "its session holds more than it deserves, and the other less",
    Cause.LIMIT: "both are below a limit that is reached, and the other holds less than it deserves",
    Cause.OVERDUE: "the other waits longer than reserve_after_s for room that nothing else gives",
}
"""The causes in words."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An executor is evicted: for the session `winner`, since when (seconds), and why."""

    winner: str
    cause: Cause
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Promise:
    """Promised places of a session. The promise is `paid` once an executor has left for it."""

    places: tuple[Allocation, ...]
    paid: bool = False


class ExecutorPhase(StrEnum):
    """The phase of an executor, as far as placement depends on it."""

    STARTING = "starting"
    VACANT = "vacant"
    BUSY = "busy"
    LEAVING = "leaving"
    IDLE = "idle"
    ENDING = "ending"


WORKING = frozenset({ExecutorPhase.STARTING, ExecutorPhase.VACANT, ExecutorPhase.BUSY})
"""Phases in which an executor counts as held by its session; a leaving one does not."""


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """An executor: `since` is when it entered its phase, `bound_at` when it joined its session.

    VACANT has a session and no task. LEAVING leaves its session after the running task. IDLE has no session. ENDING is
    being removed from its node. `gang` groups the members of one batch. From `protected_until` on an executor that
    starts or runs a task may be evicted. `eviction` is that of a LEAVING executor, whose task is ended after the grace
    period. It `may_stay` while that task runs.
    """

    id: str
    phase: ExecutorPhase
    requirement: ResourceRequirement
    session: str | None = None
    gang: str | None = None
    application: str = "function"
    setup: str = ""
    since: float = 0.0
    bound_at: float = 0.0
    delay_release_s: float = DELAY_RELEASE_S
    eviction: Eviction | None = None
    protected_until: float = 0.0
    may_stay: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Facts for one cycle. `schedule` leaves `fleet` unchanged.

    `promises` are those of the cycle before, by session; see `Plan`. A node of theirs that is not in `fleet` is
    expected to report until `nodes_expected_until`.
    """

    fleet: Fleet
    demands: tuple[Demand, ...] = ()
    executors: tuple[ExecutorView, ...] = ()
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    promises: Mapping[str, Promise] = field(default_factory=dict)
    nodes_expected_until: float = -inf

    def on_their_way(self) -> Iterator[ExecutorView]:
        """Yield executors whose room will be free soon: they end, or are evicted."""
        for executor in self.executors:
            if executor.phase is ExecutorPhase.ENDING or (
                executor.phase is ExecutorPhase.LEAVING and executor.eviction
            ):
                yield executor

    def leaving(self) -> dict[str, int]:
        """Return the number of leaving executors per session."""
        leaving: dict[str, int] = {}
        for executor in self.executors:
            if executor.session is not None and executor.phase not in WORKING:
                leaving[executor.session] = leaving.get(executor.session, 0) + 1
        return leaving

    def held(self) -> dict[str, list[ExecutorView]]:
        """Return the executors per session that work for it or soon will."""
        held: dict[str, list[ExecutorView]] = {}
        for executor in self.executors:
            if executor.session is not None and executor.phase in WORKING:
                held.setdefault(executor.session, []).append(executor)
        return held
