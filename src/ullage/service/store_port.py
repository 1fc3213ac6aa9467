"""The port to where state lives: records go in, a snapshot and pages come out; all are model values.

All calls are made from the service's one thread; none blocks. One contract suite holds for every adapter
and every fake (`tests/contracts/`).
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from ullage.model.allocation import Allocation
from ullage.model.application import Application
from ullage.model.event import Event
from ullage.model.nomination import Nomination
from ullage.model.queue import Queue
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.session import Session
from ullage.model.task import TaskResult


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
