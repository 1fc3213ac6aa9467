"""The result of a cycle: actions for the service, and why sessions wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.core.sharing.world import Eviction
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code


@dataclass(frozen=True, slots=True)
class Start:
    """Create an executor for a session at the place of `allocation`; equal `gang` numbers start together.

    `won` marks room that others were evicted from, or for which it waited too long: it is protected for `protected_s`.
    """

    session: str
    allocation: Allocation
    gang: int | None = None
    rank: int = 0
    won: bool = False


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bind an idle executor to a session; `won` as for `Start`."""

    session: str
    executor: str
    gang: int | None = None
    rank: int = 0
    won: bool = False


@dataclass(frozen=True, slots=True)
class Unbind:
    """Take an executor from its session after its running task.

    With an `eviction` a session waits for its room, and the task is ended after the grace period. If the executor is
    being evicted already, another session is the winner from now on.
    """

    executor: str
    eviction: Eviction | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Cancel the eviction of an executor: no session waits for its room any more."""

    executor: str


@dataclass(frozen=True, slots=True)
class Release:
    """End an idle executor."""

    executor: str


@dataclass(frozen=True, slots=True)
class EvictExecutor:
    """End a busy executor now; its task is queued again and does not count as lost."""

    executor: str
    eviction: Eviction


Action = Start | Reuse | Unbind | Keep | Release | EvictExecutor


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order of decision, and the entitlement of each session.

    `deserved` is the entitlement in executors per session, `waiting` why a session has less than it wants, `reserved`
    what is reserved for a session until others leave. At `wake_at` time alone changes the result (seconds, the clock
    of `now`). `promised` is the part of `reserved` for which executors are evicted or have left: the next cycle needs
    it. `yielding` executors get no further task: a session that waited too long gets their room when all are vacant.
    """

    actions: tuple[Action, ...] = ()
    deserved: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, Code] = field(default_factory=dict)
    reserved: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    promised: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    yielding: frozenset[str] = frozenset()
    wake_at: float | None = None
