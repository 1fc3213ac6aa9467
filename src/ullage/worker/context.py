"""Where the running code is: its executor, session, task and gang."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gang:
    """Membership in a batch that started together: `rank` 0..size-1."""

    id: str
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Context:
    """`task` is None outside a task; `common_data` is what the session's owner gave it.

    `logs` names the directory of the session's logs in `$ULLAGE_TASK_LOGS`; no other session has the same.
    """

    executor: str
    session: str
    task: int | None = None
    common_data: bytes | None = None
    gang: Gang | None = None
    logs: str = ""


class _Place:
    """The one place this process is at. A worker runs one task at a time, so this is no thread's own."""

    session: Context | None = None
    task: int | None = None


_GANG_VARIABLES = ("ULLAGE_GANG_ID", "ULLAGE_GANG_RANK", "ULLAGE_GANG_SIZE")


def context() -> Context:
    """Return the context of the running task or session.

    Raises:
        RuntimeError: this process is no worker, or it is in no session.

    """
    session = _Place.session
    if session is None:
        raise RuntimeError("there is no context: this code does not run in a session's worker")
    return replace(session, task=_Place.task)


def enter_session(session: Context) -> None:
    """Make `session` current, and show its gang to child processes through the environment."""
    leave_session()
    _Place.session = session
    if session.gang is not None:
        values = (session.gang.id, str(session.gang.rank), str(session.gang.size))
        os.environ.update(zip(_GANG_VARIABLES, values, strict=True))


def leave_session() -> None:
    """Make no session current."""
    _Place.session = _Place.task = None
    for name in _GANG_VARIABLES:
        os.environ.pop(name, None)


def set_task(task: int | None) -> None:
    """Make `task` the current one."""
    _Place.task = task
