"""The state of the service in memory. One thread reads and changes it.

Mutable records stay inside the service; only frozen values leave it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf
from typing import Any

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.nomination import Promised
from ullage.core.sharing.promise import places_of
from ullage.core.sharing.world import Demand, Eviction, ExecutorPhase, ExecutorView, Promise
from ullage.model.allocation import Allocation
from ullage.model.application import Application
from ullage.model.error import NotFound
from ullage.model.executor import ExecutorGang, ExecutorState
from ullage.model.nearest import Missing
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.session import RETRY_LIMIT, SessionInfo, SessionState
from ullage.model.task import MAX_SHARED_DATA, Ending, TaskResult, TaskState
from ullage.model.zone_placement import ZonePlacement
from ullage.service.stop_rules import USUAL_STOPS, StopRules
from ullage.service.store_port import PutNode

RECENT_RESULTS = 4096
RECENT_BYTES = 8 << 20
KEPT_SECONDS = 8
SHORTEST_S = 1e-3


@dataclass(slots=True)
class TaskRecord:
    """A task without a stored result. `claim` names its present hand-out, `ending` why it is being stopped.

    `signalled` is the end before which this hand-out got its signal. `batch` holds the tasks that run together with it,
    itself among them; `result` waits until all of them have one.
    """

    session: SessionRecord
    id: int
    submission: int
    input: bytes
    created_at: float
    losses: int = 0
    errors: int = 0
    claim: int | None = None
    executor: str | None = None
    handed_out_at: float = 0.0
    ending: Ending | None = None
    signalled: str = ""
    batch: tuple[TaskRecord, ...] = ()
    result: TaskResult | None = None

    def together(self) -> tuple[TaskRecord, ...]:
        """Return the tasks that start, end and are retried together with a task."""
        return self.batch or (self,)


@dataclass(slots=True)
class Submission:
    """Tasks that came in one call; `shared` is dropped when none of them is left."""

    first: int
    count: int
    left: int
    shared: bytes | None = None


class RecentResults:
    """The latest stored results of a session, for followers; older ones are read from the store.

    At most `RECENT_RESULTS` of them, with outputs of at most `RECENT_BYTES` together.
    """

    def __init__(self) -> None:
        self._results: deque[TaskResult] = deque()
        self._seconds: tuple[float, ...] = ()
        self._bytes = 0

    def extend(self, results: list[TaskResult]) -> None:
        """Add results in order of sequence, and drop the oldest above the limits."""
        self._results.extend(results)
        self._bytes += sum(len(result.output or b"") for result in results)
        while self._results and (len(self._results) > RECENT_RESULTS or self._bytes > RECENT_BYTES):
            self._bytes -= len(self._results.popleft().output or b"")

    def after(self, sequence: int, limit: int) -> list[TaskResult] | None:
        """Return up to `limit` results after a sequence number; None if only the store has them."""
        if not self._results or self._results[0].sequence > sequence + 1:
            return None
        skip = sequence + 1 - self._results[0].sequence
        return list(islice(self._results, skip, skip + limit))

    def seconds(self, most: int) -> tuple[float, ...]:
        """Return how long the last tasks ran; after `clear` of a few of them."""
        last = islice(reversed(self._results), most)
        ran = (each.ended_at - each.started_at for each in last if each.started_at is not None)
        return tuple(max(SHORTEST_S, each) for each in ran) or self._seconds

    def clear(self) -> None:
        """Remove all results. How long the last ones ran is kept."""
        self._seconds = self.seconds(KEPT_SECONDS)
        self._results.clear()
        self._bytes = 0


@dataclass(slots=True)
class SessionRecord:
    """A session with its unfinished tasks and its counts.

    `line` is a heap of task ids; those that ended while they waited are still in it and skipped. `foreseen`
    are executors that were counted as arrived when it was opened, and have not started. `retry_at` is when the next
    executor may start after a failure, 0 if there was none.
    """

    session: SessionInfo
    tasks: dict[int, TaskRecord] = field(default_factory=dict)
    line: list[int] = field(default_factory=list)
    counts: dict[TaskState, int] = field(default_factory=lambda: dict.fromkeys(TaskState, 0))
    submissions: dict[int, Submission] = field(default_factory=dict)
    submission_keys: dict[str, int] = field(default_factory=dict)
    next_task: int = 1
    sequence: int = 0
    durable: int = 0
    recent: RecentResults = field(default_factory=RecentResults)
    executors: dict[str, ExecutorRecord] = field(default_factory=dict)
    mean_task_s: float | None = None
    waiting_since: float | None = None
    waiting_for: Code | None = None
    deserved: int = 0
    not_before: float = 0.0
    retry_at: float = 0.0
    last_failure: str = ""
    foreseen: int = 0

    @property
    def id(self) -> str:
        """Its name."""
        return self.session.id

    @property
    def open(self) -> bool:
        """Whether tasks may be submitted to it."""
        return self.session.state is SessionState.OPEN

    @property
    def spent(self) -> bool:
        """Whether it closes by itself, and all its tasks have ended."""
        return self.session.spec.close_when_done and self.next_task > 1 and self.durable == self.next_task - 1

    def held_back(self, now: float) -> Code | None:
        """Return why the session gets no new executors at present; None if it does."""
        if not self.takes_tasks:
            return Code.CLOSED
        if self.session.bind_failures >= RETRY_LIMIT or self.retry_at > now:
            return Code.BIND_FAILURES
        if self.session.awaits:
            return Code.DEPENDENCY
        if (self.session.spec.begin_at or 0.0) > now:
            return Code.BEGIN_TIME
        return Code.BACKOFF if self.not_before > now else None

    def pauses(self, now: float) -> bool:
        """Return whether the session gets no new executors for a short time only."""
        waits = self.retry_at > now or self.not_before > now
        return waits and self.takes_tasks and self.session.bind_failures < RETRY_LIMIT

    @property
    def takes_tasks(self) -> bool:
        """Whether it is open and not being cancelled."""
        return self.open and not self.session.cancelled

    @property
    def pending(self) -> int:
        """Tasks that wait for an executor."""
        return self.counts[TaskState.PENDING]

    @property
    def waits_since(self) -> float | None:
        """When the next task to hand out was submitted; None if none waits."""
        waiting = (self.tasks.get(number) for number in self.line)
        task = next((task for task in waiting if task is not None), None)
        return None if task is None else task.created_at

    @property
    def at_work(self) -> int:
        """Running tasks that need their executor; not those being stopped, or on one that leaves."""
        return self._tasks_on(executor for executor in self.executors.values() if executor.phase is ExecutorPhase.BUSY)

    @property
    def on_leave(self) -> int:
        """Running tasks on executors that give way or are being ended; those that are not done then wait again."""
        return self._tasks_on(
            executor
            for executor in self.executors.values()
            if executor.stopping or (executor.eviction is not None and executor.state is ExecutorState.BOUND)
        )

    def _tasks_on(self, executors: Iterable[ExecutorRecord]) -> int:
        batch = self.session.spec.batch_size
        working = [e for e in executors if any(task.ending is None for task in e.tasks.values())]
        if batch == 1:
            return sum(len(executor.tasks) for executor in working)
        return len({executor.gang.id for executor in working if executor.gang}) * batch

    @property
    def at_rest(self) -> bool:
        """Whether a cycle has nothing to decide for it."""
        return not (self.tasks or self.executors or self.session.spec.min_instances)

    def add_pending(self, tasks: list[TaskRecord]) -> None:
        """Queue new tasks; their ids ascend and are above all before them."""
        self.tasks.update((task.id, task) for task in tasks)
        self.line.extend(task.id for task in tasks)
        self.counts[TaskState.PENDING] += len(tasks)

    def push_back(self, task: TaskRecord) -> None:
        """Queue a running task again; the smallest id goes first."""
        task.claim = task.executor = task.result = None
        task.batch = ()
        heappush(self.line, task.id)
        self.counts[TaskState.RUNNING] -= 1
        self.counts[TaskState.PENDING] += 1

    def pop_pending(self) -> TaskRecord:
        """Remove and return the next task to hand out."""
        while True:
            task = self.tasks.get(heappop(self.line))
            if task is not None:
                self.counts[TaskState.PENDING] -= 1
                return task


@dataclass(slots=True)
class ExecutorRecord:
    """A worker process. `session` is the session that it works for, also before its bind; `tasks` are keyed by claim.

    `placement` is its place on the node; `note` says if it does not run there. Other work was evicted for its
    `winner`, and the protection ends no later than `shielded_until`. `failures_before` are the failures of its session
    when it was bound; `served` says that a task ended on it. An executor that is `yielding`, or ends by an `eviction`,
    gets no further task. `memory_peak_bytes` is the most memory that it is known to have had. Clients in it wait for
    results of the sessions that it `awaits`, so many of each.
    """

    id: str
    node: str
    requirement: ResourceRequirement
    gpus: tuple[str, ...]
    application: str
    setup: str
    delay_release_s: float
    created_at: float
    state: ExecutorState = ExecutorState.VOID
    session: str | None = None
    gang: ExecutorGang | None = None
    tasks: dict[int, TaskRecord] = field(default_factory=dict)
    since: float = 0.0
    bound_at: float = 0.0
    protected_until: float = 0.0
    shielded_until: float = inf
    pid: int | None = None
    winner: str | None = None
    eviction: Eviction | None = None
    yielding: bool = False
    unusable: bool = False
    served: bool = False
    failures_before: int = 0
    stopping: bool = False
    lost: bool = False
    placement: ZonePlacement | None = None
    note: str = ""
    memory_peak_bytes: int | None = None
    awaits: dict[str, int] = field(default_factory=dict)
    shared_sent: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_SHARED_DATA))

    @property
    def phase(self) -> ExecutorPhase:
        """Its phase for the cycle."""
        if self.stopping or self.unusable or self.state is ExecutorState.RELEASING:
            return ExecutorPhase.ENDING
        if self.state is ExecutorState.BOUND:
            if self.eviction is not None:
                return ExecutorPhase.LEAVING
            return ExecutorPhase.BUSY if self.tasks else ExecutorPhase.VACANT
        if self.state is ExecutorState.UNBINDING or (self.state is ExecutorState.VOID and self.session is None):
            return ExecutorPhase.LEAVING
        return ExecutorPhase.IDLE if self.session is None else ExecutorPhase.STARTING

    @property
    def comes_free(self) -> bool:
        """Whether its room may be promised: it is idle, ends, or is being evicted."""
        phase = self.phase
        return phase in (ExecutorPhase.IDLE, ExecutorPhase.ENDING) or (
            phase is ExecutorPhase.LEAVING and self.eviction is not None
        )

    @property
    def takes_tasks(self) -> bool:
        """Whether it gets tasks."""
        return self.phase in (ExecutorPhase.BUSY, ExecutorPhase.VACANT) and not self.yielding

    def view(self) -> ExecutorView:
        """Return its frozen value for the cycle."""
        return ExecutorView(
            id=self.id,
            phase=self.phase,
            requirement=self.requirement,
            session=self.session,
            gang=self.gang.id if self.gang else None,
            application=self.application,
            setup=self.setup,
            since=self.since,
            bound_at=self.bound_at,
            delay_release_s=self.delay_release_s,
            eviction=self.eviction,
            protected_until=self.protected_until,
            may_stay=self.state is ExecutorState.BOUND and bool(self.tasks) and not self.stopping,
        )


@dataclass(slots=True)
class State:
    """The whole state: objects by name, and the books."""

    applications: dict[str, Application] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    executors: dict[str, ExecutorRecord] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    marks: dict[str, PutNode] = field(default_factory=dict)
    allocator: FleetAllocator = field(default_factory=lambda: FleetAllocator(Fleet(())))
    promises: dict[str, Promise] = field(default_factory=dict)
    epoch: int = 0
    claims: int = 0
    session_number: int = 0
    by_owner: bool = False
    """Whether each executor runs as the owner of its session."""
    stops: StopRules = USUAL_STOPS

    def mark(self, node: str, **changes: Any) -> PutNode:
        """Change what is stored of a node. Return the record to write."""
        self.marks[node] = replace(self.marks.get(node, PutNode(node)), **changes)
        return self.marks[node]

    def promise(self, session: str, places: tuple[Allocation, ...] = ()) -> None:
        """Promise these places to a session, for which other work was evicted."""
        known = self.promises.get(session, Promise(()))
        self.promises[session] = Promise((*known.places, *places), paid=True)
        self.keep_promises()

    def keep_promises(self) -> None:
        """Reserve the promised places. What executors hold that leave for them counts once."""
        places = [
            place
            for session, promise in self.promises.items()
            for place in chain.from_iterable(places_of(session, promise.places, 1))
        ]
        leaving = (executor.id for executor in self.executors.values() if executor.comes_free)
        self.allocator.promise_to_sessions((Promised(tuple(places), tuple(leaving)),) if places else ())

    @property
    def fleet(self) -> Fleet:
        """The books: executors and requests for cards are in one ledger."""
        return self.allocator.fleet

    def session(self, session_id: str) -> SessionRecord:
        """Return the session of that id.

        Raises:
            NotFound: there is none.

        """
        record = self.sessions.get(session_id)
        if record is None:
            raise self.no_session(session_id)
        return record

    def no_session(self, session_id: str, more: str = "") -> NotFound:
        """Return the error of a session that does not exist; the newest ones may be meant."""
        return Missing("session", session_id, reversed(self.sessions), more=more)

    def application(self, name: str) -> Application:
        """Return the application of that name.

        Raises:
            NotFound: there is none.

        """
        application = self.applications.get(name)
        if application is None:
            raise Missing("application", name, self.applications)
        return application

    def timeout_of(self, record: SessionRecord) -> float | None:
        """Return the seconds that a task of the session may run: the limit of the session, else of its application."""
        own = record.session.spec.task_timeout_s
        return self.applications[record.session.spec.application].task_timeout_s if own is None else own

    def retries_of(self, record: SessionRecord) -> int:
        """Return how often a failed task of the session runs again: as the session says, else its application."""
        own = record.session.spec.retries
        return self.applications[record.session.spec.application].retries if own is None else own

    def next_claim(self) -> int:
        """Return a claim number that no earlier hand-out of this store had."""
        self.claims += 1
        return (self.epoch << 32) + self.claims

    def setup_key(self, session: SessionInfo) -> str:
        """Return a key: workers of one application are interchangeable between sessions of equal keys."""
        setup, owner = session.spec.setup, session.spec.owner if self.by_owner else ""
        parts = (setup.python, setup.working_directory, sorted(setup.environment.items()))
        return "" if parts == (None, None, []) and not owner else repr((*parts, owner))

    def demand(self, record: SessionRecord, now: float, weight: int | None = None) -> Demand:
        """Return an open session as a demand for the cycle, of its own weight or another one."""
        spec = record.session.spec
        application = self.applications[spec.application]
        return Demand(
            session=record.id,
            number=record.session.number,
            requirement=spec.resreq,
            pending=0 if record.session.cancelled else record.pending,
            running=record.at_work,
            leaving=record.on_leave,
            queue=spec.queue,
            application=spec.application,
            setup=self.setup_key(record.session),
            priority=spec.priority,
            weight=spec.weight if weight is None else weight,
            batch_size=spec.batch_size,
            min_instances=0 if record.session.cancelled else spec.min_instances,
            max_instances=spec.max_instances,
            application_max=application.max_instances,
            delay_release_s=application.delay_release_s,
            held_back=record.held_back(now),
            pausing=record.pauses(now),
            waiting_since=record.waiting_since,
        )
