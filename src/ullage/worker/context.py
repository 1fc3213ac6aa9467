"""The context of the running code: its executor, session, task and gang."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gang:
    """Membership in a batch that started together: `rank` is 0 to `size` - 1."""

    id: str
    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Context:
    """The executor, session and task of the running code.

    `task` is None outside a task. `common_data` is the common data of the session. `logs` is the name of the
    session's directory in `$ULLAGE_TASK_LOGS`; no other session has the same.
    """

    executor: str
    session: str
    task: int | None = None
    common_data: bytes | None = None
    gang: Gang | None = None
    logs: str = ""


class _Current:
    """The context of this process. A worker runs one task at a time, so threads share it."""

    session: Context | None = None
    task: int | None = None


_GANG_VARIABLES = ("ULLAGE_GANG_ID", "ULLAGE_GANG_RANK", "ULLAGE_GANG_SIZE")


def context() -> Context:
    """Return the context of the running task or session.

    Raises:
        RuntimeError: this process is not a worker, or not in a session.

    """
    session = _Current.session
    if session is None:
        raise RuntimeError("no context: this code does not run in the worker of a session")
    return replace(session, task=_Current.task)


def enter_session(session: Context) -> None:
    """Make `session` current. The environment passes its gang to child processes."""
    leave_session()
    _Current.session = session
    os.environ.update(gang_variables(session.gang))


def gang_variables(gang: Gang | None) -> dict[str, str]:
    """Return the variables with the gang of an executor; none without one."""
    if gang is None:
        return {}
    return dict(zip(_GANG_VARIABLES, (gang.id, str(gang.rank), str(gang.size)), strict=True))


def leave_session() -> None:
    """Make no session current."""
    _Current.session = _Current.task = None
    for name in _GANG_VARIABLES:
        os.environ.pop(name, None)


def set_task(task: int | None) -> None:
    """Make `task` the current one."""
    _Current.task = task
