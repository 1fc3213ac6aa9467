"""What the service needs from outside: a place to run work and a place to keep state.

Both ports are small, speak model values, and have one contract suite each that every adapter and
every fake passes (`tests/contracts/`). All calls are made from the service's one thread; none blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ullage.model.allocation import Allocation, Charge
from ullage.model.application import Application
from ullage.model.event import Event
from ullage.model.executor import BindCode, Gang
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.queue import Queue
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.session import Session, Setup
from ullage.model.task import TaskResult

# --- engine: orders out -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Start one worker process holding exactly `requirement`; `gpus` are the granted cards, in order.

    `charges` says what it was granted of each of them, in the same order; without any they are its alone.
    """

    executor: str
    node: str
    application: Application
    setup: Setup
    requirement: ResourceRequirement
    gpus: tuple[Gpu, ...] = ()
    charges: tuple[Charge, ...] = ()


@dataclass(frozen=True, slots=True)
class BindOrder:
    """Enter a session: the worker gets its common data before the first task."""

    executor: str
    session: str
    common_data: bytes | None = None
    gang: Gang | None = None


class TaskOrder(NamedTuple):
    """One hand-out of a task. `claim` names this hand-out for good: a result carries it back.

    `shared_id` names data that many tasks use; `shared` holds it only if the executor lacks it.
    """

    session: str
    task: int
    claim: int
    input: bytes
    shared_id: int | None = None
    shared: bytes | None = None


class Engine(Protocol):
    """Runs executors. Every order is answered later by an event, also when it fails."""

    def launch(self, order: LaunchOrder) -> None:
        """Start a worker: `Registered` follows, or `Gone`."""

    def bind(self, order: BindOrder) -> None:
        """Enter a session: `Bound` follows, or `Gone`."""

    def hand_out(self, executor: str, tasks: Sequence[TaskOrder]) -> None:
        """Run tasks one after the other: each comes back in `Completed` or `Returned`, or `Gone` ends all."""

    def unbind(self, executor: str) -> None:
        """Leave the session once handed-out tasks are done: `Unbound` follows, or `Gone`."""

    def stop(self, executor: str, grace_s: float) -> None:
        """End the worker and all it started, after `grace_s` by force: `Gone` follows once none is left."""


# --- engine: events in --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A node is there, or its facts changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Contact with a node was lost."""

    node: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The worker process is up and can be bound."""

    executor: str
    pid: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A bind ended; `code` other than OK means the session was not entered."""

    executor: str
    code: BindCode = BindCode.OK
    message: str = ""


class TaskOutcome(NamedTuple):
    """What the worker says of one hand-out; code 0 is success. Times are seconds since the epoch."""

    task: int
    claim: int
    code: int
    output: bytes | None
    message: str
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Completed:
    """Some handed-out tasks ended."""

    executor: str
    outcomes: tuple[TaskOutcome, ...]


@dataclass(frozen=True, slots=True)
class Returned:
    """Handed-out tasks the worker gave back unstarted, because the one before them runs long."""

    executor: str
    claims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unbound:
    """The worker left its session and is idle."""

    executor: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The worker and all it started have ended; `reason` says why, for people."""

    executor: str
    reason: str


EngineEvent = NodeReported | NodeLost | Registered | Bound | Completed | Returned | Unbound | Gone


class EngineListener(Protocol):
    """Where an engine reports."""

    def on_engine_event(self, event: EngineEvent) -> None:
        """Take one fact; called from the service's thread only."""


# --- store --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutApplication:
    """Insert or replace an application."""

    application: Application


@dataclass(frozen=True, slots=True)
class DropApplication:
    """Forget an application."""

    name: str


@dataclass(frozen=True, slots=True)
class PutQueue:
    """Insert or replace a queue."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class DropQueue:
    """Forget a queue."""

    name: str


@dataclass(frozen=True, slots=True)
class PutNode:
    """What an operator said of a node; its facts are reported afresh by its engine."""

    name: str
    cordoned: bool


@dataclass(frozen=True, slots=True)
class PutSession:
    """Insert or replace a session."""

    session: Session


@dataclass(frozen=True, slots=True)
class DropSession:
    """Forget a session with its tasks, results and events."""

    session: str


@dataclass(frozen=True, slots=True)
class AddTasks:
    """New tasks `first`, `first`+1, ... of one submission; `key` makes a repeated submission known."""

    session: str
    submission: int
    key: str
    first: int
    inputs: tuple[bytes, ...]
    created_at: float
    shared: bytes | None = None


@dataclass(frozen=True, slots=True)
class AddResults:
    """Endings of tasks; a task has one result, a second one is an error of the caller."""

    results: tuple[TaskResult, ...]


@dataclass(frozen=True, slots=True)
class AddClaims:
    """Tasks handed to an executor."""

    session: str
    tasks: tuple[int, ...]
    claims: tuple[int, ...]
    executor: str
    at: float


@dataclass(frozen=True, slots=True)
class PutAttempts:
    """How often a task was lost with its executor, and how often it reported an error."""

    session: str
    task: int
    losses: int
    errors: int


@dataclass(frozen=True, slots=True)
class PutExecutor:
    """A worker process that exists, or is about to: what a restart must look for."""

    executor: str
    node: str
    session: str | None
    pid: int | None
    requirement: ResourceRequirement
    gpus: tuple[str, ...]
    created_at: float


@dataclass(frozen=True, slots=True)
class DropExecutor:
    """A worker process known to be gone."""

    executor: str


@dataclass(frozen=True, slots=True)
class PutAllocation:
    """Insert or replace the allocation of a request for cards; those of executors are not stored."""

    allocation: Allocation


@dataclass(frozen=True, slots=True)
class DropAllocation:
    """An allocation is gone: its cards are free."""

    allocation: str


@dataclass(frozen=True, slots=True)
class PutNomination:
    """Insert or replace the room that is kept for a request."""

    nomination: Nomination


@dataclass(frozen=True, slots=True)
class DropNomination:
    """No room is kept for a request any more: it is placed, or gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class PutQuota:
    """Insert or replace the quota of a namespace."""

    namespace: str
    quota: Quota


@dataclass(frozen=True, slots=True)
class DropQuota:
    """Forget the quota of a namespace."""

    namespace: str


@dataclass(frozen=True, slots=True)
class AddEvent:
    """One event."""

    event: Event


Record = (
    PutApplication
    | DropApplication
    | PutQueue
    | DropQueue
    | PutNode
    | PutSession
    | DropSession
    | AddTasks
    | AddResults
    | AddClaims
    | PutAttempts
    | PutExecutor
    | DropExecutor
    | PutAllocation
    | DropAllocation
    | PutNomination
    | DropNomination
    | PutQuota
    | DropQuota
    | AddEvent
)


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task without a result."""

    task: int
    submission: int
    input: bytes
    created_at: float
    losses: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A submission: which tasks it made."""

    submission: int
    key: str
    first: int
    count: int
    shared: bytes | None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session with what a restart needs to go on."""

    session: Session
    counts: dict[str, int]
    last_sequence: int
    tasks: tuple[StoredTask, ...]
    submissions: tuple[StoredSubmission, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything stored. `epoch` counts the openings of this store, from 1."""

    epoch: int
    applications: tuple[Application, ...] = ()
    queues: tuple[Queue, ...] = ()
    nodes: tuple[PutNode, ...] = ()
    sessions: tuple[StoredSession, ...] = ()
    executors: tuple[PutExecutor, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    quotas: tuple[PutQuota, ...] = ()
    last_event: int = 0


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task as stored, for display: `result` is None until it ended."""

    session: str
    task: int
    created_at: float
    result: TaskResult | None = None
    executor: str | None = None
    claimed_at: float | None = None
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A window on a list: items after `after`, at most `limit` of them."""

    after: int = 0
    limit: int = 100


class Store(Protocol):
    """Keeps state. Writes are durable, in order, and grouped: one transaction may carry many."""

    def load(self) -> Snapshot:
        """Everything stored, and a new epoch.

        Raises:
            Unavailable: the file is damaged or belongs to a newer version; nothing was changed.

        """

    def write(self, *records: Record) -> Future[None]:
        """All of `records` or none; the future ends when they are durable, or with `Unavailable`."""

    def results(self, session: str, page: Page) -> list[TaskResult]:
        """Results by sequence: those with `sequence > page.after`, oldest first."""

    def tasks(self, session: str, page: Page) -> list[TaskView]:
        """Tasks by id: those with `task > page.after`, without inputs; `result.output` is left out (None)."""

    def events(self, page: Page, session: str | None = None) -> list[Event]:
        """Events by number, of one session or of all."""

    def close(self) -> None:
        """Write what is queued and close; later writes end with `Unavailable`."""
