"""Bodies of sessions and their tasks."""

from __future__ import annotations

import msgspec

from ullage.model.notify_on import NotifyOn
from ullage.model.queue_name import DEFAULT_QUEUE
from ullage.wire.requirement import ResourceMap
from ullage.wire.schema import Schema, View


class SetupBody(Schema, frozen=True, kw_only=True):
    """Settings of the workers of a session in addition to those of its application."""

    python: str | None = None
    working_directory: str | None = None
    environment: dict[str, str] = {}


class CreateSession(Schema, frozen=True, kw_only=True):
    """A new session. With `id` None the server chooses an id; with `resreq` None the configured default applies.

    With `fill_resreq` the default also applies to what a text `resreq` leaves out of cpu, mem and gpu.

    `after` are dependencies such as `ok:ID` (also `end:`, `fail:`, `start:`); it gets no executor before `begin_at`.
    `array` are the indices of its tasks, such as `0-99`. The URL `notify` gets a notice of its end, or with `notify_on`
    fail only if a task did not succeed. The `owner` is the caller; another one is for operators.
    `signal`, such as `USR1@60`, is sent to its programs so many seconds before a time limit or an eviction ends them.
    `user` is the user of the client's process, which counts where the token of the caller names nobody.
    """

    application: str
    id: str | None = None
    resreq: str | ResourceMap | None = None
    fill_resreq: bool = False
    queue: str = DEFAULT_QUEUE
    owner: str = ""
    user: str = ""
    priority: int | None = None
    weight: int | None = None
    min_instances: int = 0
    max_instances: int | None = None
    batch_size: int = 1
    common_data: bytes | None = None
    setup: SetupBody = SetupBody()
    retries: int | None = None
    task_timeout_s: float | None = None
    grace_s: float | None = None
    signal: str | None = None
    close_when_done: bool = False
    after: list[str] = []
    begin_at: float | None = None
    array: str | None = None
    notify: str | None = None
    notify_on: NotifyOn = NotifyOn.END


class UpdateSession(Schema, frozen=True, kw_only=True):
    """Changes to an open session; an omitted field stays as it is.

    Before `begin_at` it gets no new executor; running tasks go on.
    """

    priority: int | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    min_instances: int | msgspec.UnsetType = msgspec.UNSET
    max_instances: int | msgspec.UnsetType | None = msgspec.UNSET
    begin_at: float | msgspec.UnsetType | None = msgspec.UNSET


class DeleteClosed(Schema, frozen=True, kw_only=True):
    """Which closed sessions to delete: those closed before a time, of a queue, of an owner; None excludes none.

    One call deletes at most `limit` of them, by number, from those after `after`. With `dry_run` none is deleted.
    """

    before: float | None = None
    queue: str | None = None
    owner: str | None = None
    after: int = 0
    limit: int = 100
    dry_run: bool = False


class Deleted(View, frozen=True, kw_only=True):
    """The ids of deleted sessions. `next` is the number to go on after; None if there are no more."""

    sessions: list[str]
    next: int | None


class SubmitTasks(Schema, frozen=True, kw_only=True):
    """New tasks in order. `key` identifies a repeat of this submission, which is answered and not submitted again.

    `shared` is data that all of these tasks use; it is sent to an executor once.
    """

    inputs: list[bytes]
    key: str
    shared: bytes | None = None


class CancelTasks(Schema, frozen=True, kw_only=True):
    """The numbers of tasks to cancel."""

    tasks: list[int]


class CancelledTasks(View, frozen=True, kw_only=True):
    """How many of the tasks had not ended. Those that run end within their grace."""

    tasks: int


class RequeueSession(Schema, frozen=True, kw_only=True):
    """What runs again: these tasks, or all. Of a closed session the failed ones, and with `cancelled` those too."""

    tasks: list[int] = []
    cancelled: bool = False


class Requeued(View, frozen=True, kw_only=True):
    """How many tasks run again, and in which session: the same if it was open, else a new one."""

    session: str
    tasks: int


class SessionBody(View, frozen=True, kw_only=True):
    """A session with its counts, what it holds and what it deserves (both in executors).

    `state` is open or closed. `activity` is what is shown: closed, running if a task runs, else pending if one waits,
    else idle. `after` are its dependencies, and `awaits` those that are not fulfilled yet.

    `task_timeout_s` is the time limit of each of its tasks, of the session, else of its application. `running_since` is
    when the running task was sent that has run longest. `awaiting` counts the executors whose task waits for tasks.

    `warnings` are in the response to its creation, and to a change: what can never be satisfied, and what to ask for
    instead.
    """

    id: str
    application: str
    state: str
    activity: str
    resreq: str
    queue: str
    owner: str
    priority: int
    weight: int
    min_instances: int
    max_instances: int | None
    batch_size: int
    created_at: float
    closed_at: float | None
    pending: int
    running: int
    succeed: int
    failed: int
    cancelled: int
    held: int
    deserved: int
    share: float
    bind_failures: int
    reason: str | None
    message: str
    warnings: list[str] = msgspec.field(default_factory=list)
    after: list[str] = msgspec.field(default_factory=list)
    awaits: list[str] = msgspec.field(default_factory=list)
    begin_at: float | None = None
    array: str | None = None
    task_timeout_s: float | None = None
    running_since: float | None = None
    awaiting: int = 0


class ExecBody(Schema, frozen=True, kw_only=True):
    """A program to run beside a task; `env` is added to the environment of the task. With `tty` it has a terminal."""

    argv: list[str]
    env: dict[str, str] = {}
    tty: bool = False


class Submitted(View, frozen=True, kw_only=True):
    """Ids of the new tasks: `first` .. `first + count - 1`."""

    first: int
    count: int


class TaskBody(View, frozen=True, kw_only=True):
    """One task; result fields are None until it ends. `index` is that of an array, None without one.

    `losses` counts executors that were lost during it, `errors` its failed runs after which it was run again.
    """

    session: str
    task: int
    state: str
    created_at: float
    executor: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    message: str = ""
    losses: int = 0
    errors: int = 0
    index: int | None = None


class Result(View, frozen=True, kw_only=True):
    """The result of a task. `sequence` orders the results of a session."""

    task: int
    sequence: int
    state: str
    code: int
    output: bytes | None
    message: str
    executor: str | None
    started_at: float | None
    ended_at: float


class Results(View, frozen=True, kw_only=True):
    """Results after a cursor. `next` is the cursor to continue from; `closed` says that no more will come."""

    results: list[Result]
    next: int
    closed: bool
