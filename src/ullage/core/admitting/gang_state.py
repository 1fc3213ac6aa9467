"""What a gang is in: its members, since when it waits, and until when it backs off."""

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
"""How long a gang stays away after its first failure."""

MAX_BACKOFF_S = 300.0
"""The bound of the doubling: 10, 20, 40, 80, 160, 300, 300 seconds. A placement starts it over."""


class GangPhase(StrEnum):
    """Where a gang is in its life.

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
"""What one member has: its cards, or why it has none."""


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """One gang that changed: its phase, the answer per member, what was placed, and what was given back.

    `retry_at` is when a gang that backs off is tried again. `evicted` were asked to leave for it, and
    `nominated` says for which member each, and where room is kept.
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
    """What of a gang cannot be found out again: how long it waits already, and until when it backs off."""

    phase: GangPhase = GangPhase.PENDING
    since: float | None = None
    retry_at: float | None = None
    backoff_s: float = BACKOFF_S
    quorate: bool = False

    def not_after(self, now: float) -> GangStanding:
        """Return it with no past time after `now`, where a clock was ahead when it was stored."""
        since = None if self.since is None else min(self.since, now)
        retry_at = None if self.retry_at is None else min(self.retry_at, now + self.backoff_s)
        return replace(self, since=since, retry_at=retry_at)


NEW_GANG = GangStanding()


@dataclass(slots=True)
class GangState:
    """Members in the order in which they came; `since` is when the first of those that wait began to.

    `quorate` is set once there were enough members to try; `tried` is what the last trial depended on. At
    `renew_at` the room that is kept for it would soon lapse.
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
    renew_at: float | None = None

    @property
    def claim(self) -> GangClaim:
        """What the newest member says of the gang."""
        claim = next(reversed(self.members.values())).claim.gang
        assert claim is not None
        return claim

    @property
    def expires_at(self) -> float | None:
        """When the present wait has been too long; no timeout, or one of 0: never."""
        if self.since is None or not self.claim.timeout_s:
            return None
        return self.since + self.claim.timeout_s

    @property
    def standing(self) -> GangStanding:
        """Return what a restart must find."""
        return GangStanding(self.phase, self.since, self.retry_at, self.backoff_s, self.quorate)

    def resume(self, standing: GangStanding) -> None:
        """Go on from what was stored."""
        self.phase, self.since, self.retry_at = standing.phase, standing.since, standing.retry_at
        self.backoff_s, self.quorate = standing.backoff_s, standing.quorate

    def reported(self) -> tuple[object, ...]:
        """Return what outsiders see of it, for telling whether that changed."""
        codes = {uid: a.code if isinstance(a, Refusal) else a.state for uid, a in self.answers.items()}
        return self.phase, self.retry_at, codes
