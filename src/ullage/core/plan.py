"""What a cycle decided: actions for the service, and the reasons for what it did not do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.model.allocation import Allocation
from ullage.model.rejection import Code


@dataclass(frozen=True, slots=True)
class Start:
    """Create an executor for a session at the place of `allocation`; equal `gang` numbers start together.

    `overdue` marks room that was held for a request that waited too long: it is not claimed back at once.
    """

    session: str
    allocation: Allocation
    gang: int | None = None
    rank: int = 0
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bind an idle executor to a session."""

    session: str
    executor: str
    gang: int | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Unbind:
    """Take an executor from its session after its running task.

    `reclaimed`: somebody waits for it, and the task is ended after the grace, unless it is `spared`.
    """

    executor: str
    reclaimed: bool = False
    spared: bool = False
    claimant: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """End an idle executor."""

    executor: str


@dataclass(frozen=True, slots=True)
class Evict:
    """End a busy executor now; its task goes back and is not counted as lost."""

    executor: str


Action = Start | Reuse | Unbind | Release | Evict


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they were decided, and what each session is entitled to.

    `deserved` counts executors per session; `waiting` says what stopped each session short of what
    it wants; `reserved` what is held for a session until others leave; `wake_at` is when time alone
    will change the answer (seconds, the clock of `now`).
    """

    actions: tuple[Action, ...] = ()
    deserved: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, Code] = field(default_factory=dict)
    reserved: dict[str, tuple[Allocation, ...]] = field(default_factory=dict)
    wake_at: float | None = None
