"""Gangs of requests: they wait until all required members fit at once.

The places of a gang are stored in one write, all or none. Its members, its wait and its back-off are stored too, so a
restart knows every gang. A gang whose wait ended meanwhile is tried once before it backs off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.core.admitting.gang_state import Answer, GangOutcome, GangPhase, GangStanding
from ullage.core.gang import Gangs
from ullage.core.placing.domain import spans
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import Conflict
from ullage.model.nearest import Missing
from ullage.service.context import ServiceContext
from ullage.service.events import allocation_facts
from ullage.service.journal import Callback, in_one_write
from ullage.service.nominations import NominatedRequests
from ullage.service.store_port import Drop, PutAllocation, PutGang, Snapshot


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The state of a gang: the answer for each member, None for a member that was not examined yet.

    `domain` is the last level of proximity, `domains` the number of its values over which members with cards are
    spread.
    """

    key: str
    phase: GangPhase
    answers: dict[str, Answer | None]
    domain: str | None = None
    domains: int = 0


class GangRequests:
    """Use cases of gangs of requests for cards."""

    def __init__(self, context: ServiceContext, nominated: NominatedRequests) -> None:
        self._allocator, self._nominated, self._journal = context.state.allocator, nominated, context.journal
        self._events, self._clock, self._changed = context.events, context.clock, context.changed
        self._gangs = Gangs()
        self._members: dict[str, dict[str, Request]] = {}
        self._born: dict[str, float] = {}
        self._standing: dict[str, GangStanding] = {}
        """As it is stored."""
        self._seen: tuple[int, Rules] | None = None

    def recover(self, snapshot: Snapshot) -> None:
        """Restore every stored gang, after the ledger."""
        now = self._clock()
        for stored in sorted(snapshot.gangs, key=lambda gang: (gang.born, gang.key)):
            self._born[stored.key] = born = min(stored.born, now)
            self._members[stored.key] = {request.uid: request for request in stored.members}
            for request in stored.members:
                self._gangs.add(request, now, born)
            self._standing[stored.key] = stored.standing
            self._gangs.resume(stored.key, stored.standing.not_after(now))

    def owner(self, key: str) -> str | None:
        """Return the user who asked for a gang; None if there is no such gang."""
        members = self._members.get(key, {}).values()
        return next((request.claim.owner for request in members), None)

    @in_one_write
    def put(self, key: str, requests: Sequence[Request], done: Callback) -> GangStatus:
        """Request all of these together. Known members are answered and not requested again.

        Raises:
            InvalidRequest: a request is of no gang. NotFound: its pool is not known. Conflict: a uid is a member
            of another gang, or an executor's. Unavailable: not ready.

        """
        now = self._clock()
        for request in requests:
            self._allocator.held(request.uid)
            self._allocator.check_names(request)
            other = self._gangs.key_of(request.uid)
            if other not in (None, key):
                text = f"{request.uid} is a member of gang {other}; end that first"
                raise Conflict(text, code="already-in-gang", field="members")
        for request in requests:
            self._gangs.add(request, now)
            self._allocator.see(request)
            self._members.setdefault(key, {}).setdefault(request.uid, request)
        self._born.setdefault(key, now)
        self._journal.write(self._stored(key))
        self._tick(now)
        self._journal.write(then=done)
        return self.status(key)

    def status(self, key: str) -> GangStatus:
        """Return the state of a gang.

        Raises:
            NotFound: it has no members.

        """
        phase = self._gangs.phase(key)
        if phase is None:
            raise Missing("gang", key, self._members)
        answers = {uid: self._gangs.answer(uid) for uid in self._members[key]}
        first = next(iter(answers))  # the others lack the same, and examining every card takes long
        answers[first] = self._gangs.explain(first, self._allocator)
        domain = self._gangs.domain(key)
        if domain is None:
            return GangStatus(key, phase, answers)
        nodes = [answer.node for answer in answers.values() if isinstance(answer, Allocation)]
        return GangStatus(key, phase, answers, domain, domains=spans(self._allocator.fleet, domain, nodes))

    @in_one_write
    def drop(self, key: str, done: Callback) -> tuple[str, ...]:
        """End a gang: waiting members are removed, and the cards of the others are freed.

        Raises:
            NotFound: it has no members.

        """
        self.status(key)
        now, freed = self._clock(), []
        for uid in self._members.pop(key):
            self._gangs.remove(uid)
            gpus = self._allocator.dealloc(uid, now).gpus
            if gpus:
                freed.append(uid)
                self._events.add("allocation.freed", uid=uid, gpus=gpus)
        self._journal.write(
            *(Drop(PutAllocation, uid) for uid in freed), *self._nominated.ended(), self._stored(key), then=done
        )
        self._events.add("gang.dropped", gang=key)
        self._tick(now)
        self._changed(True)
        return tuple(freed)

    def leave(self, uid: str) -> None:
        """Note that a request ended. If it was a member of a gang, its place is not filled again."""
        self._gangs.remove(uid)
        for key, members in tuple(self._members.items()):
            if uid in members:
                del members[uid]
                if not members:
                    del self._members[key]
                self._journal.write(self._stored(key))

    def _stored(self, key: str) -> PutGang | Drop:
        members = self._members.get(key)
        if members is None:
            self._born.pop(key, None)
            self._standing.pop(key, None)
            return Drop(PutGang, key)
        standing = self._standing[key] = self._gangs.standing(key)
        return PutGang(key, self._born[key], tuple(members.values()), standing)

    def waits(self, uid: str) -> bool:
        """Return whether a reservation waits for the rest of its gang."""
        return self._gangs.waits(uid)

    def expire(self, now: float) -> float | None:
        """Place what can be placed by now. Return when time alone changes the answer.

        Any change of the books or of the quotas may be what a gang lacked (see `core/admitting/wake.py`).
        """
        if not self._allocator.fleet.nodes:
            return None  # no node has reported since the start: nothing is tried, and no gang gives up
        due = self._gangs.due()
        if self._members and (self._seen != self._books() or (due is not None and due <= now)):
            self._tick(now)
        return self._gangs.due()

    def _books(self) -> tuple[int, Rules]:
        return self._allocator.version, self._allocator.rules

    def _tick(self, now: float) -> None:
        """Bring all gangs up to `now`.

        A gang without room may have been examined before a younger one took some. So one more tick follows a tick that
        changed the books.
        """
        self._seen = self._books()
        for outcome in self._gangs.tick(self._allocator, now):
            self._note(outcome)
        changed = [key for key in self._members if self._gangs.standing(key) != self._standing.get(key)]
        records = (*self._nominated.ended(), *map(self._stored, changed))
        if records:
            self._journal.write(*records)

    def _note(self, outcome: GangOutcome) -> None:
        """Store and record what one gang got, or gave up."""
        kept = self._nominated.put(*outcome.nominated)
        self._journal.write(*map(PutAllocation, (*outcome.evicted, *outcome.placed)), *kept)
        if outcome.evicted:
            for each in outcome.nominated:
                self._nominated.record(each)
            self._events.add("gang.preempts", gang=outcome.key, members=len(kept), victims=len(outcome.evicted))
            self._changed(True)
        if outcome.placed:
            self._events.add("gang.bound", gang=outcome.key, members=len(outcome.placed))
            for member in outcome.placed:
                self._events.add("allocation.bound", **allocation_facts(member))
            self._changed(True)
        before = self._standing.get(outcome.key)
        if outcome.retry_at is not None and (before is None or outcome.retry_at != before.retry_at):
            self._events.add("gang.backed-off", gang=outcome.key, message=outcome.phase.value)
