"""Sessions and tasks with what they were asked to be: for one at a time, not for lists."""

from __future__ import annotations

from ullage.model.notify_on import NotifyOn
from ullage.wire.schema import View
from ullage.wire.session import SessionBody, TaskBody


class ProgramBody(View, frozen=True, kw_only=True):
    """A program of the application `command`. `environment` has the names of its variables, `stdin_bytes` its input."""

    argv: list[str]
    working_directory: str | None
    environment: list[str]
    stdin_bytes: int | None = None


class QueueLimitsBody(View, frozen=True, kw_only=True):
    """What a queue allows: for all its sessions together (`limit`), for one executor, and for one task."""

    queue: str
    limit: str | None
    max_resreq: str | None
    max_time_s: float | None


class SessionDetails(SessionBody, frozen=True, kw_only=True):
    """A session with its limits. `program` is that of its first task, None of a session of another application.

    `retries` and `task_timeout_s` are in force: of the session, else of its application. `environment` has the names
    of the variables of its executors. `queue_limits` are those of its queue and of the queues above that have limits.
    """

    program: ProgramBody | None
    task_timeout_s: float | None
    grace_s: float | None
    signal: str | None
    retries: int
    close_when_done: bool
    working_directory: str | None
    environment: list[str]
    python: str | None
    notify: str | None
    notify_on: NotifyOn
    queue_limits: list[QueueLimitsBody]


class TaskDetails(TaskBody, frozen=True, kw_only=True):
    """A task with its program, if it has one, and its limits as in `SessionDetails`."""

    program: ProgramBody | None
    task_timeout_s: float | None
    grace_s: float | None
    retries: int
