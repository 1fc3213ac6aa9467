"""Executors: long-lived worker processes and their states.

    Void -> Idle -> Binding -> Bound -> Unbinding -> Idle -> Releasing -> Released

`apply` is the whole table; a transition that it does not list is refused and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from ullage.model.error import Conflict


class ExecutorState(StrEnum):
    """The states of an executor."""

    VOID = "void"
    IDLE = "idle"
    BINDING = "binding"
    BOUND = "bound"
    UNBINDING = "unbinding"
    RELEASING = "releasing"
    RELEASED = "released"


class ExecutorOperation(StrEnum):
    """The operations on an executor."""

    REGISTER = "register"
    BIND = "bind"
    BIND_COMPLETED = "bind-completed"
    BIND_FAILED = "bind-failed"
    LAUNCH_TASK = "launch-task"
    COMPLETE_TASK = "complete-task"
    UNBIND = "unbind"
    UNBIND_COMPLETED = "unbind-completed"
    RELEASE = "release"
    UNREGISTER = "unregister"


class BindCode(IntEnum):
    """The result of a bind."""

    OK = 0
    INSTALL_FAILED = 10
    WORKER_FAILED = 11
    ENTER_FAILED = 12
    UNKNOWN = 19


_S, _O = ExecutorState, ExecutorOperation
TRANSITIONS: dict[tuple[ExecutorState, ExecutorOperation], ExecutorState] = {
    (_S.VOID, _O.REGISTER): _S.IDLE,
    (_S.IDLE, _O.BIND): _S.BINDING,
    (_S.IDLE, _O.RELEASE): _S.RELEASING,
    (_S.BINDING, _O.BIND): _S.BINDING,
    (_S.BINDING, _O.BIND_COMPLETED): _S.BOUND,
    (_S.BINDING, _O.BIND_FAILED): _S.UNBINDING,
    (_S.BINDING, _O.UNBIND): _S.UNBINDING,
    (_S.BINDING, _O.UNBIND_COMPLETED): _S.IDLE,
    (_S.BINDING, _O.UNREGISTER): _S.RELEASED,
    (_S.BOUND, _O.LAUNCH_TASK): _S.BOUND,
    (_S.BOUND, _O.COMPLETE_TASK): _S.BOUND,
    (_S.BOUND, _O.UNBIND): _S.UNBINDING,
    (_S.UNBINDING, _O.LAUNCH_TASK): _S.UNBINDING,
    (_S.UNBINDING, _O.COMPLETE_TASK): _S.UNBINDING,
    (_S.UNBINDING, _O.UNBIND): _S.UNBINDING,
    (_S.UNBINDING, _O.UNBIND_COMPLETED): _S.IDLE,
    (_S.RELEASING, _O.UNREGISTER): _S.RELEASED,
}


def apply(state: ExecutorState, operation: ExecutorOperation, session: str | None = None) -> ExecutorState:
    """Return the state after `operation`.

    Raises:
        Conflict: the table has no such transition, or a bind completes without a session.

    """
    after = TRANSITIONS.get((state, operation))
    if after is None:
        raise Conflict(f"an executor that is {state} refuses {operation}", code="wrong-state")
    if operation is ExecutorOperation.BIND_COMPLETED and session is None:
        raise Conflict("a bind cannot complete without a session", code="wrong-state")
    return after


@dataclass(frozen=True, slots=True)
class ExecutorGang:
    """Membership of an executor in a batch that starts together: `rank` 0..size-1."""

    id: str
    rank: int
    size: int
