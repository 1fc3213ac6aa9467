"""Groups of requests that are placed together: they wait here until all that are required fit at once.

What a gang gets is stored in one write, all of it or nothing. Members that still wait are known to this
process only: whoever asked asks again after a restart, and is answered with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ullage.core.domain import spans
from ullage.core.gang import Answer, GangPhase, Gangs
from ullage.core.selection import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import Conflict, NotFound
from ullage.service.events import Events, allocation_facts
from ullage.service.journal import Callback, Journal
from ullage.service.nominations import NominatedRequests
from ullage.service.state import State
from ullage.service.store_port import DropAllocation, PutAllocation


@dataclass(frozen=True, slots=True)
class GangStatus:
    """How a gang stands: the answer per member, None for one that was not looked at yet.

    `domain` is the last level that says what is near, `domains` over how many of its values the members are spread
    that have cards.
    """

    key: str
    phase: GangPhase
    answers: dict[str, Answer | None]
    domain: str | None = None
    domains: int = 0


class GangRequests:
    """Use cases of gangs of requests for cards."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        events: Events,
        clock: Callable[[], float],
        changed: Callable[[bool], None],
        nominated: NominatedRequests,
    ) -> None:
        self._allocator = state.allocator
        self._nominated = nominated
        self._journal = journal
        self._events = events
        self._clock = clock
        self._changed = changed
        self._gangs = Gangs()
        self._members: dict[str, dict[str, None]] = {}
        self._seen: tuple[int, Rules] | None = None

    def put(self, key: str, requests: Sequence[Request], done: Callback) -> GangStatus:
        """Ask for all of these together; members that are known already are answered, not repeated.

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
            self._members.setdefault(key, {})[request.uid] = None
        self._tick(now)
        self._journal.write(then=done)
        return self.status(key)

    def status(self, key: str) -> GangStatus:
        """How a gang stands.

        Raises:
            NotFound: it has no members.

        """
        phase = self._gangs.phase(key)
        if phase is None:
            raise NotFound(f"gang {key} has no members", field="gang")
        answers = {uid: self._gangs.answer(uid) for uid in self._members[key]}
        first = next(iter(answers))  # the others lack the same, and a look at every card takes its time
        answers[first] = self._gangs.explain(first, self._allocator)
        domain = self._gangs.domain(key)
        if domain is None:
            return GangStatus(key, phase, answers)
        nodes = [answer.node for answer in answers.values() if isinstance(answer, Allocation)]
        return GangStatus(key, phase, answers, domain, spans(self._allocator.fleet, domain, nodes))

    def drop(self, key: str, done: Callback) -> tuple[str, ...]:
        """End a gang: members that wait are forgotten, and the cards of the others are free.

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
                self._events.add("allocation.freed", uid=uid, gpus=" ".join(gpus))
        self._journal.write(*map(DropAllocation, freed), *self._nominated.ended(), then=done)
        self._events.add("gang.dropped", gang=key)
        self._tick(now)
        self._changed(True)
        return tuple(freed)

    def leave(self, uid: str) -> None:
        """A request is over; if it was a member of a gang, its place is not filled again."""
        self._gangs.remove(uid)
        for key, members in tuple(self._members.items()):
            if uid in members:
                del members[uid]
                if not members:
                    del self._members[key]

    def waits(self, uid: str) -> bool:
        """Whether a reservation waits for the rest of its gang."""
        return self._gangs.waits(uid)

    def expire(self, now: float) -> float | None:
        """Place what can be placed by now; returns when time alone changes the answer.

        Any change of the books or of the quotas may be what a gang lacked (see `core/wake.py`).
        """
        due = self._gangs.due()
        if self._members and (self._seen != self._books() or (due is not None and due <= now)):
            self._tick(now)
        return self._gangs.due()

    def _books(self) -> tuple[int, Rules]:
        return self._allocator.version, self._allocator.rules

    def _tick(self, now: float) -> None:
        for outcome in self._gangs.tick(self._allocator, now):
            kept = [self._nominated.put(each) for each in outcome.nominated]
            self._journal.write(*map(PutAllocation, (*outcome.evicted, *outcome.placed)), *kept)
            if outcome.evicted:
                for each in outcome.nominated:
                    self._nominated.tell(each)
                self._events.add("gang.preempts", gang=outcome.key, members=len(kept), victims=len(outcome.evicted))
                self._changed(True)
            if outcome.placed:
                self._events.add("gang.bound", gang=outcome.key, members=len(outcome.placed))
                for member in outcome.placed:
                    self._events.add("allocation.bound", **allocation_facts(member))
                self._changed(True)
            if outcome.phase in (GangPhase.TIMED_OUT, GangPhase.FAILED):
                self._events.add("gang.backed-off", gang=outcome.key, message=outcome.phase.value)
        ended = self._nominated.ended()
        if ended:
            self._journal.write(*ended)
        self._seen = self._books()
