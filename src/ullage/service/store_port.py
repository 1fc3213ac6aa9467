"""The port of the store: it takes records, and returns a snapshot and pages. All are model values.

Pages may be read from any thread, and long ones are read outside of the event loop. All other calls are made from the
one thread of the service, and none of them blocks. One contract suite tests every adapter and every fake
(`tests/contracts/`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from ullage.core.admitting.gang_state import NEW_GANG, GangStanding
from ullage.model.allocation import Allocation
from ullage.model.application import Application
from ullage.model.claim import Request
from ullage.model.error import Unavailable
from ullage.model.event import Event
from ullage.model.history import (
    CapacitySpan,
    Expiry,
    HistoryQuery,
    PastSession,
    SessionHistory,
    Stay,
    UsageQuery,
    UsageReport,
)
from ullage.model.identity import AccessToken
from ullage.model.nomination import Nomination
from ullage.model.notice import Notice
from ullage.model.queue import Queue
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionInfo
from ullage.model.task import TaskResult, TaskState


@dataclass(frozen=True, slots=True)
class PutApplication:
    """Insert or replace an application."""

    application: Application


@dataclass(frozen=True, slots=True)
class PutQueue:
    """Insert or replace a queue."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class PutNode:
    """Insert or replace what is known of a node that its engine does not report again.

    An operator said whether it is `cordoned`. It last showed who holds what at `observed_at` (seconds since the
    epoch), by `strangers` among others, who are not known here.
    """

    name: str
    cordoned: bool = False
    strangers: tuple[str, ...] = ()
    observed_at: float | None = None


@dataclass(frozen=True, slots=True)
class PutSession:
    """Insert or replace a session."""

    session: SessionInfo


@dataclass(frozen=True, slots=True)
class DropSession:
    """Forget a session with its tasks, results and events.

    Once it is written, no read and no snapshot has anything of them, and its name is free. A store may delete the rows
    later, in steps between other writes, and goes on after a restart.
    """

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
    """The number of times that a task was lost with its executor, and that it reported an error."""

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
class PutAllocation:
    """Insert or replace the allocation of a request for cards; those of executors are not stored."""

    allocation: Allocation


@dataclass(frozen=True, slots=True)
class PutNomination:
    """Insert or replace a nomination."""

    nomination: Nomination


@dataclass(frozen=True, slots=True)
class PutGang:
    """Insert or replace a gang: all its members, and when the gang was first asked for (seconds since the epoch)."""

    key: str
    born: float
    members: tuple[Request, ...]
    standing: GangStanding = NEW_GANG


@dataclass(frozen=True, slots=True)
class WonPlace:
    """The place of an executor in room that others gave up, protected until then; None: as long as it starts."""

    place: Allocation
    until: float | None = None


@dataclass(frozen=True, slots=True)
class PutWait:
    """Insert or replace what a session waits for.

    It has had too little since `since`, and backs off until `not_before` (seconds since the epoch, 0: it does not).
    `places` are promised to it, and `paid` says that an executor has left for them. `won` are the protected places
    that it has got already.
    """

    session: str
    since: float | None = None
    not_before: float = 0.0
    places: tuple[Allocation, ...] = ()
    paid: bool = False
    won: tuple[WonPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class PutQuota:
    """Insert or replace the quota of a namespace, with its state and the time of its last change."""

    namespace: str
    quota: Quota
    ready: bool = True
    since: float | None = None


@dataclass(frozen=True, slots=True)
class PutHistory:
    """Insert or replace the row of a session in the history; `DropSession` leaves it."""

    history: SessionHistory


@dataclass(frozen=True, slots=True)
class PutStay:
    """Insert or replace a stay."""

    stay: Stay


@dataclass(frozen=True, slots=True)
class PutCapacity:
    """Insert or replace what the nodes offered."""

    span: CapacitySpan


@dataclass(frozen=True, slots=True)
class PutToken:
    """Insert or replace the token of a user, without its secret."""

    token: AccessToken


@dataclass(frozen=True, slots=True)
class DropExpired:
    """Delete the oldest expired rows of the history, at most `limit` of each table; what goes on stays."""

    expiry: Expiry


@dataclass(frozen=True, slots=True)
class PutNotice:
    """Insert or replace a notice that is not delivered yet."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete what a record of this kind has stored under a key."""

    kind: type[
        PutApplication
        | PutQueue
        | PutExecutor
        | PutAllocation
        | PutNomination
        | PutGang
        | PutWait
        | PutQuota
        | PutToken
        | PutNotice
    ]
    key: str


@dataclass(frozen=True, slots=True)
class AddEvent:
    """One event."""

    event: Event


Record = (
    PutApplication
    | PutQueue
    | PutNode
    | PutSession
    | DropSession
    | AddTasks
    | AddResults
    | AddClaims
    | PutAttempts
    | PutExecutor
    | PutAllocation
    | PutNomination
    | PutGang
    | PutWait
    | PutQuota
    | PutHistory
    | PutStay
    | PutCapacity
    | PutToken
    | DropExpired
    | PutNotice
    | Drop
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
class EndedTask:
    """A task with a result, and what it was to do."""

    task: int
    submission: int
    input: bytes


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

    session: SessionInfo
    counts: dict[str, int]
    last_sequence: int
    tasks: tuple[StoredTask, ...]
    submissions: tuple[StoredSubmission, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All stored records. `epoch` is the number of times that this store was opened.

    `last_event` is the number of the newest event ever stored, `alive_at` the last time at which the server is known to
    have run. `history` are the sessions and `stays` the stays that have not ended in the history; `last_session` and
    `last_stay` are the highest numbers there, `capacity` is the newest span.
    """

    epoch: int
    applications: tuple[Application, ...] = ()
    queues: tuple[Queue, ...] = ()
    nodes: tuple[PutNode, ...] = ()
    sessions: tuple[StoredSession, ...] = ()
    executors: tuple[PutExecutor, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    gangs: tuple[PutGang, ...] = ()
    waits: tuple[PutWait, ...] = ()
    quotas: tuple[PutQuota, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    notices: tuple[Notice, ...] = ()
    last_event: int = 0
    alive_at: float = 0.0
    history: tuple[SessionHistory, ...] = ()
    stays: tuple[Stay, ...] = ()
    last_session: int = 0
    last_stay: int = 0
    capacity: CapacitySpan | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task as stored, for display: `result` is None until it ended. `errors` counts its failed runs before."""

    session: str
    task: int
    created_at: float
    result: TaskResult | None = None
    executor: str | None = None
    claimed_at: float | None = None
    losses: int = 0
    errors: int = 0


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
        """Write all of `records` or none. The future ends when they are durable, or with `Unavailable`."""

    def results(self, session: str, page: Page) -> list[TaskResult]:
        """Return results with `sequence > page.after`, oldest first; large outputs end a page before its limit.

        It reads the outputs: an event loop calls it in a thread.
        """

    def tasks(self, session: str, page: Page) -> list[TaskView]:
        """Tasks by id: those with `task > page.after`, without inputs; `result.output` is left out (None)."""

    def ended(self, session: str, states: Collection[TaskState], page: Page) -> list[EndedTask]:
        """Return the tasks by id, those with `task > page.after`, that ended in one of these states.

        It reads the inputs: an event loop calls it in a thread. Large inputs end a page before its limit.
        """

    def shared(self, session: str, submission: int) -> bytes | None:
        """Return the shared data of a submission."""

    def events(self, page: Page, session: str | None = None, *, evictions: bool = False) -> list[Event]:
        """Events by number, of one session or of all.

        With `evictions` only those that ended an executor of the session for another one, the newest first.
        """

    def history(self, query: HistoryQuery, now: float) -> list[PastSession]:
        """Return sessions of the history by number; stays that go on are counted until `now`."""

    def stays(self, query: HistoryQuery) -> list[Stay]:
        """Return the stays of a time by number: those with `number > query.after`. `states` is not read."""

    def usage(self, query: UsageQuery, now: float) -> UsageReport:
        """Return the usage of a time by step and group.

        Stays that go on are counted until `now`, and so is the newest span of capacity.
        """

    def has_expired(self, expiry: Expiry) -> bool:
        """Return whether `DropExpired` would delete anything."""

    def watch_room(self, notify: Callable[[Unavailable | None], None]) -> None:
        """Call `notify` from any thread when there is no room for what is written, and with None when it is written.

        Writes wait for room in between; nothing that was accepted is lost.
        """

    def close(self) -> None:
        """Write what is queued and close; later writes end with `Unavailable`."""
