"""Sessions: a user's claim under which tasks run."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

from ullage.model.array import Array, parse_array
from ullage.model.dependency import Dependency
from ullage.model.early_signal import parse_signal
from ullage.model.environment import check_absolute_path, check_environment
from ullage.model.error import Conflict, invalid
from ullage.model.name import check_name
from ullage.model.notice import check_url
from ullage.model.notify_on import NotifyOn
from ullage.model.quantity import format_bytes
from ullage.model.queue import DEFAULT_QUEUE, MAX_PRIORITY, check_weight
from ullage.model.request import DEFAULT_REQUIREMENT, ResourceRequirement
from ullage.model.session_state import SessionState

__all__ = [
    "MAX_BATCH",
    "MIN_MEMORY_BYTES",
    "PYTHON_WORKER_BYTES",
    "RETRY_LIMIT",
    "SessionInfo",
    "SessionSpec",
    "SessionState",
    "Setup",
    "check_memory",
    "memory_warning",
]

RETRY_LIMIT = 5
"""Bind failures after which a session gets no new executor until an operator clears the count."""

MIN_MEMORY_BYTES = 1 << 20
"""Bytes below which no process starts: the program, the loader and a stack need some hundred pages."""

PYTHON_WORKER_BYTES = 32 << 20
"""Bytes that a Python worker may take before it runs anything."""

MAX_BATCH = 4096

_ID_CHARACTERS = 200
"""The most characters of an id in the name of its logs."""


def check_memory(requirement: ResourceRequirement) -> None:
    """Refuse an amount of memory in which no executor can start; 0 is no limit."""
    asked = requirement.memory_bytes
    if 0 < asked < MIN_MEMORY_BYTES:
        fix = f"it counts bytes, and a process needs at least {format_bytes(MIN_MEMORY_BYTES)}; write mem=1g or so"
        raise invalid("resreq.mem", asked, fix)


def memory_warning(requirement: ResourceRequirement) -> str | None:
    """Return a warning if a Python worker may not start in the requested memory; None if it will."""
    asked = requirement.memory_bytes
    if not 0 < asked < PYTHON_WORKER_BYTES:
        return None
    needed = format_bytes(PYTHON_WORKER_BYTES)
    return f"mem={format_bytes(asked)} may be too little: a Python worker alone takes up to {needed}, and may not start"


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings beyond the application that two interchangeable worker processes share.

    `python` is the interpreter for the built-in workers; environment and directory override those of the application.
    """

    python: str | None = None
    working_directory: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_absolute_path("setup.python", self.python)
        check_absolute_path("setup.working_directory", self.working_directory)
        check_environment("setup.environment", self.environment)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The specification of a session. `max_instances` None leaves the number of executors to the queue.

    `retries` and `task_timeout_s` override those of the application; `grace_s` is the time from SIGTERM to SIGKILL of a
    task that is ended. Its program gets the `signal`, such as `USR1@60`, so many seconds before its time limit or an
    eviction ends it. With `close_when_done` the session closes by itself once all of its tasks, of which there was at
    least one, have ended. With `batch_size` n, executors come in gangs of n that start together or not at all; minimum
    and maximum count executors and are held in whole gangs (minimum rounded up, maximum down). It gets no executor
    before `begin_at` (seconds since the epoch), and before what it is to run `after` has happened. `array` are the
    indices of its tasks, such as `0-99`. The URL `notify` gets a notice of its end, or with
    `notify_on` fail only if a task did not succeed.

    Raises:
        InvalidRequest: a field is out of range, or no whole gang fits between minimum and maximum.

    """

    application: str
    resreq: ResourceRequirement = DEFAULT_REQUIREMENT
    queue: str = DEFAULT_QUEUE
    owner: str = ""
    priority: int = 0
    weight: int = 1
    min_instances: int = 0
    max_instances: int | None = None
    batch_size: int = 1
    common_data: bytes | None = None
    setup: Setup = Setup()
    retries: int | None = None
    task_timeout_s: float | None = None
    grace_s: float | None = None
    close_when_done: bool = False
    after: tuple[Dependency, ...] = ()
    begin_at: float | None = None
    array: str | None = None
    notify: str | None = None
    notify_on: NotifyOn = NotifyOn.END
    signal: str | None = None

    def __post_init__(self) -> None:
        check_name("application", self.application)
        check_name("queue", self.queue)
        check_weight("weight", self.weight)
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise invalid("priority", self.priority, f"0 (lowest) to {MAX_PRIORITY} is needed")
        if not 1 <= self.batch_size <= MAX_BATCH:
            raise invalid("batch_size", self.batch_size, f"1 to {MAX_BATCH} is needed")
        if self.min_instances < 0:
            raise invalid("min_instances", self.min_instances, "0 or more is needed")
        if self.max_instances is not None and self.max_instances < 1:
            raise invalid("max_instances", self.max_instances, "1 or more is needed; omit it for no limit")
        self._check_tasks()
        self._check_when()
        low, high = self.instance_bounds
        if high is not None and (high < low or high == 0):
            raise invalid(
                "max_instances",
                self.max_instances,
                f"no whole batch of {self.batch_size} fits between min_instances {self.min_instances} and it",
            )

    def _check_tasks(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise invalid("retries", self.retries, "0 or more is needed")
        if self.task_timeout_s is not None and self.task_timeout_s <= 0:
            raise invalid("task_timeout_s", self.task_timeout_s, "more than 0 seconds is needed; omit it for no limit")
        if self.grace_s is not None and not 0 <= self.grace_s < inf:
            raise invalid("grace_s", self.grace_s, "a number of seconds from 0 is needed; omit it for the usual one")
        if self.signal is not None:
            parse_signal(self.signal)

    def _check_when(self) -> None:
        """Refuse a begin, an array or a notice that is none."""
        if self.begin_at is not None and not (isfinite(self.begin_at) and self.begin_at >= 0):
            raise invalid("begin_at", self.begin_at, "seconds since 1970 are needed; omit it to begin at once")
        if self.array is not None:
            parse_array(self.array)
        if self.notify is not None:
            check_url(self.notify)

    @property
    def instance_bounds(self) -> tuple[int, int | None]:
        """Minimum and maximum executors in whole gangs."""
        low = -(-self.min_instances // self.batch_size) * self.batch_size
        if self.max_instances is None:
            return low, None
        return low, self.max_instances // self.batch_size * self.batch_size


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as stored; the service keeps the counts of its tasks separately.

    `cancelled` says that it takes no more tasks and closes once those it has have ended; `cancel_reason` says why, if
    it was not a user. `awaits` are the dependencies that are not fulfilled yet.
    """

    id: str
    spec: SessionSpec
    created_at: float
    number: int
    state: SessionState = SessionState.OPEN
    closed_at: float | None = None
    bind_failures: int = 0
    cancelled: bool = False
    cancel_reason: str = ""
    awaits: tuple[Dependency, ...] = ()

    def __post_init__(self) -> None:
        check_name("session", self.id)

    @property
    def elements(self) -> Array | None:
        """Its array, if its tasks are those of one."""
        return None if self.spec.array is None else parse_array(self.spec.array)

    @property
    def logs(self) -> str:
        """A unique name for the output of its programs: a later session of the same id has another one.

        It is a file name; a long id is cut, and the number makes the name unique.
        """
        return f"{self.id[:_ID_CHARACTERS]}@{self.number}"

    def require_open(self) -> None:
        """Refuse work for a closed session (`Conflict`)."""
        if self.state is not SessionState.OPEN or self.cancelled:
            how = "being cancelled" if self.state is SessionState.OPEN else "closed"
            why = f" ({self.cancel_reason})" if self.cancel_reason else ""
            raise Conflict(f"session {self.id} is {how}{why}; open a new one", code="session-closed")
