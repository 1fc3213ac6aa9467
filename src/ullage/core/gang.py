"""Gangs: requests that are placed together or not at all.

A gang is held back until enough members exist: those that wait and those that run. Then it is placed as
a whole on a draft of the books; only if all that are required fit are they assumed, in one step, and
bound together. Nothing is ever held for a part of a gang, so gangs cannot block each other: in each
tick the older one is tried first, and a younger one goes ahead only if the older does not fit now.
Where a gang may preempt and does not fit, all of its victims are evicted together, and its room is
kept until they are gone.

A gang that is not placed in time, or loses its quorum while it waits, gives back all it reserved and
backs off, each time twice as long; it keeps its age. Times are seconds of the caller's clock.
"""

from __future__ import annotations

from ullage.core.admitting.gang_state import Answer, GangOutcome, GangPhase, GangStanding, GangState
from ullage.core.admitting.gang_step import GangStep, forget
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.error import Conflict, Unavailable, invalid
from ullage.model.rejection import Code


class Gangs:
    """All gangs that have members; the cards they hold are in the ledger of the allocator, not here."""

    def __init__(self) -> None:
        self._gangs: dict[str, GangState] = {}
        self._key_of: dict[str, str] = {}

    # --- members ---

    def add(self, request: Request, now: float, born: float | None = None) -> GangPhase:
        """Add a member, or repeat it. Return the phase of its gang.

        `born` is the age of a gang that was known before, in place of `now`.

        Raises:
            InvalidRequest: it is of no gang. Conflict: its uid is a member of another gang.

        """
        claim = request.claim.gang
        if claim is None:
            raise invalid("gang", request.uid, "the request names no gang")
        key = self._key_of.setdefault(request.uid, claim.key)
        if key != claim.key:
            raise Conflict(f"{request.uid} is a member of gang {key}; remove it there first", code="already-in-gang")
        gang = self._gangs.setdefault(key, GangState(key, now if born is None else born))
        if request.uid not in gang.members:
            gang.members[request.uid] = request
            gang.divided |= claim.divided
            gang.since = now if gang.since is None and gang.retry_at is None else gang.since
        return gang.phase

    def resume(self, key: str, standing: GangStanding) -> None:
        """Restore the state of a gang from before a restart, after its members were added."""
        self._gangs[key].resume(standing)

    def standing(self, key: str) -> GangStanding:
        """Return what of a gang a restart must find."""
        return self._gangs[key].standing

    def remove(self, uid: str) -> GangPhase | None:
        """Remove a member. Return the phase of its gang; None if it was in none.

        What it reserved is given back in the next tick, which also judges whether the gang has its quorum
        still. What it has bound is the caller's to free.
        """
        key = self._key_of.pop(uid, None)
        if key is None:
            return None
        gang = self._gangs[key]
        del gang.members[uid]
        gang.answers.pop(uid, None)
        gang.leaving.add(uid)
        return gang.phase

    # --- looks ---

    def phase(self, key: str) -> GangPhase | None:
        """Return the phase of a gang; None if it has no members."""
        gang = self._gangs.get(key)
        return gang.phase if gang is not None and gang.members else None

    def explain(self, uid: str, allocator: FleetAllocator) -> Answer | None:
        """Return `answer`; if not even one member finds room, the refusal of this member alone."""
        answer = self.answer(uid)
        whole = (Code.GANG_ROOM, Code.GANG_DOMAIN)
        if isinstance(answer, Allocation | None) or answer.code not in whole or answer.rejections[0].had:
            return answer
        alone = allocator.simulate(self._gangs[self._key_of[uid]].members[uid]).outcome
        return alone if isinstance(alone, Refusal) else answer

    def domain(self, key: str) -> str | None:
        """Return the deepest level of the gang's domain, as the newest member names it."""
        gang = self._gangs.get(key)
        return gang.claim.innermost if gang is not None and gang.members else None

    def key_of(self, uid: str) -> str | None:
        """Return the gang of a member; None if it is in none."""
        return self._key_of.get(uid)

    def answer(self, uid: str) -> Answer | None:
        """Return the last answer to a member; None before the first."""
        key = self._key_of.get(uid)
        return None if key is None else self._gangs[key].answers.get(uid)

    def waits(self, uid: str) -> bool:
        """Return whether the reservation of a member waits for the rest of its gang, and must not be swept."""
        answer = self.answer(uid)
        return isinstance(answer, Allocation) and answer.state is AllocationState.ASSUMED

    def due(self) -> float | None:
        """Return the first time at which a tick acts although nothing changed; None if there is none."""
        gangs = [gang for gang in self._gangs.values() if gang.members]
        times = [gang.expires_at if gang.retry_at is None else gang.retry_at for gang in gangs]
        times += [gang.renew_at for gang in gangs]
        return min((at for at in times if at is not None), default=None)

    # --- steps ---

    def tick(self, allocator: FleetAllocator, now: float, *, commit: bool = True) -> tuple[GangOutcome, ...]:
        """Bring all gangs up to `now`, the oldest first; those that changed.

        Without `commit` what is placed stays assumed until `commit` is called, and times out like a wait.

        Raises:
            Unavailable: the allocator is not ready; nothing was changed.

        """
        if not allocator.is_ready:
            raise Unavailable("the allocator is not ready; gangs wait for it", code="not-ready")
        gangs = sorted(self._gangs.values(), key=lambda gang: (gang.born, gang.key))
        left = {gang.key: forget(allocator, gang.leaving, now) for gang in gangs}
        steps = [GangStep(gang, allocator, now, self._held(allocator.fleet, gang), commit=commit) for gang in gangs]
        before = [gang.reported() for gang in gangs]
        # Who gives up gives back before anybody is placed: an older gang may need just that room.
        given_back = [(*left[step.gang.key], *step.give_up()) for step in steps]
        outcomes = [
            _advance(step, old, forgotten) for step, old, forgotten in zip(steps, before, given_back, strict=True)
        ]
        self._gangs = {key: gang for key, gang in self._gangs.items() if gang.members}
        return tuple(outcome for outcome in outcomes if outcome is not None)

    def commit(self, key: str, allocator: FleetAllocator, now: float) -> tuple[Allocation, ...]:
        """Bind all reservations of a gang and return them; none if the next tick will release them."""
        gang = self._gangs.get(key)
        if gang is None or gang.leaving or (gang.expires_at is not None and now >= gang.expires_at):
            return ()
        return tuple(GangStep(gang, allocator, now, self._held(allocator.fleet, gang), commit=True).bind().values())

    def _held(self, fleet: Fleet, gang: GangState) -> dict[str, Allocation]:
        """Return what a gang has in the ledger: of its members, and of earlier members that were not added again."""
        known = (uid for uid in gang.members if uid in fleet.ledger)
        others = (uid for uid in sorted(fleet.gangs.get(gang.key, ())) if self._key_of.get(uid) is None)
        return {uid: fleet.ledger[uid] for uid in (*known, *others)}


def _advance(step: GangStep, before: object, forgotten: tuple[str, ...]) -> GangOutcome | None:
    """Place one gang; what changed in this tick, which began `before` and in which it gave back `forgotten`."""
    gang = step.gang
    if not gang.members:
        if not forgotten:
            return None
        return GangOutcome(gang.key, GangPhase.FAILED, answers={}, placed=(), forgotten=forgotten)
    placed = step.place()
    if step.commit:
        placed |= step.bind()
        if gang.phase is GangPhase.RUNNING:
            placed |= step.place() | step.bind()
    if not (forgotten or placed or step.nominated) and gang.reported() == before:
        return None
    return GangOutcome(
        gang.key,
        gang.phase,
        answers=dict(gang.answers),
        placed=tuple(allocation for _, allocation in sorted(placed.items())),
        forgotten=forgotten,
        retry_at=gang.retry_at,
        evicted=tuple(step.evicted),
        nominated=tuple(step.nominated),
    )
