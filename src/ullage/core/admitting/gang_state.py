"""The state of a gang: its members, since when it waits, and until when it backs off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.core.admitting.wake import Tried
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import GangClaim, Request
from ullage.model.nomination import Nomination

BACKOFF_S = 10.0
"""The back-off of a gang after its first failure."""

MAX_BACKOFF_S = 300.0
"""The bound of the doubling: 10, 20, 40, 80, 160, 300, 300 seconds. A placement resets it."""


class GangPhase(StrEnum):
    """The phase of a gang.

    PENDING lacks members, WAITING lacks room, SCHEDULING holds reservations, RUNNING has its required
    members bound. TIMED_OUT and FAILED (it lost its quorum) back off; then a new wait begins.
    """

    PENDING = "pending"
    WAITING = "waiting"
    SCHEDULING = "scheduling"
    RUNNING = "running"
    TIMED_OUT = "timed-out"
    FAILED = "failed"


Answer = Allocation | Refusal
"""The result of one member: its cards, or why it has none."""


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """One gang that changed: its phase, the answer per member, what was placed, and what was released.

    `retry_at` is when a gang that backs off is tried again. `evicted` are allocations that were evicted for it, and
    `nominated` the members for which, and the nodes where room is reserved.
    """

    key: str
    phase: GangPhase
    answers: Mapping[str, Answer]
    placed: tuple[Allocation, ...] = ()
    forgotten: tuple[str, ...] = ()
    retry_at: float | None = None
    evicted: tuple[Allocation, ...] = ()
    nominated: tuple[Nomination, ...] = ()


@dataclass(frozen=True, slots=True)
class GangStanding:
    """The facts of a gang that must be stored: since when it waits, and until when it backs off."""

    phase: GangPhase = GangPhase.PENDING
    since: float | None = None
    retry_at: float | None = None
    backoff_s: float = BACKOFF_S
    quorate: bool = False

    def not_after(self, now: float) -> GangStanding:
        """Return it with times limited to `now`, in case a clock was ahead when it was stored."""
        since = None if self.since is None else min(self.since, now)
        retry_at = None if self.retry_at is None else min(self.retry_at, now + self.backoff_s)
        return replace(self, since=since, retry_at=retry_at)


NEW_GANG = GangStanding()


@dataclass(slots=True)
class GangState:
    """Members in the order of their arrival; `since` is when the first waiting member began to wait.

    It is `divided` if a member states subgroups, and `quorate` once there are enough members to try. `tried` is what
    the last trial depended on. Shortly after `renew_at` its reservation would lapse.
    """

    key: str
    born: float
    members: dict[str, Request] = field(default_factory=dict)
    phase: GangPhase = GangPhase.PENDING
    since: float | None = None
    retry_at: float | None = None
    backoff_s: float = BACKOFF_S
    quorate: bool = False
    leaving: set[str] = field(default_factory=set)
    answers: dict[str, Answer] = field(default_factory=dict)
    tried: Tried | None = None
    divided: bool = False
    renew_at: float | None = None

    @property
    def claim(self) -> GangClaim:
        """The gang as its newest member describes it; one that states subgroups, if any does."""
        claims = (gang for each in reversed(self.members.values()) if (gang := each.claim.gang) is not None)
        newest = next(claims)
        return next((gang for gang in claims if gang.divided), newest) if self.divided > newest.divided else newest

    @property
    def expires_at(self) -> float | None:
        """When the present wait is too long; never without a timeout or with a timeout of 0."""
        if self.since is None or not self.claim.timeout_s:
            return None
        return self.since + self.claim.timeout_s

    @property
    def standing(self) -> GangStanding:
        """Return what has to be stored."""
        return GangStanding(
            phase=self.phase, since=self.since, retry_at=self.retry_at, backoff_s=self.backoff_s, quorate=self.quorate
        )

    def resume(self, standing: GangStanding) -> None:
        """Continue from what was stored."""
        self.phase, self.since, self.retry_at = standing.phase, standing.since, standing.retry_at
        self.backoff_s, self.quorate = standing.backoff_s, standing.quorate

    def reported(self) -> tuple[object, ...]:
        """Return what is visible of it, to detect changes."""
        codes = {uid: a.code if isinstance(a, Refusal) else a.state for uid, a in self.answers.items()}
        return self.phase, self.retry_at, codes
