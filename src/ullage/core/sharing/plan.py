"""What a cycle decided: actions for the service, and the reasons for what it did not do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.core.sharing.world import Eviction
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code


@dataclass(frozen=True, slots=True)
class Start:
    """Create an executor for a session at the place of `allocation`; equal `gang` numbers start together.

    `won` marks room that others gave up for it, or for which it waited too long: it keeps it for `protected_s`.
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

    With an `eviction` a session waits for its room, and the task is ended after the grace. Of an executor that
    gives way already, another session is the winner from now on.
    """

    executor: str
    eviction: Eviction | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Let an executor that was to give way stay: no session counts on its room any more."""

    executor: str


@dataclass(frozen=True, slots=True)
class Release:
    """End an idle executor."""

    executor: str


@dataclass(frozen=True, slots=True)
class EvictExecutor:
    """End a busy executor now; its task goes back and is not counted as lost."""

    executor: str
    eviction: Eviction


Action = Start | Reuse | Unbind | Keep | Release | EvictExecutor


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they were decided, and what each session is entitled to.

    `deserved` counts executors per session; `waiting` says what stopped each session short of what
    it wants; `reserved` what is held for a session until others leave; `wake_at` is when time alone
    will change the answer (seconds, the clock of `now`). `promised` is the part of `reserved` for which
    executors give way or have left: the next cycle needs it. Executors that are `yielding` get no further
    task: a session that waited too long gets their room when all of them are vacant.
    """

    actions: tuple[Action, ...] = ()
    deserved: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, Code] = field(default_factory=dict)
    reserved: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    promised: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    yielding: frozenset[str] = frozenset()
    wake_at: float | None = None
