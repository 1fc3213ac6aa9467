"""A request that finds no room takes it from others of lower priority, as soon as their owners are gone.

Who gives way is marked as releasing, and the room is kept for the request, both in one durable step. It
holds cards only when it is asked for again and those who gave way were freed.
"""

from __future__ import annotations

from collections.abc import Callable

from ullage.core.allocator import Allocator
from ullage.core.books.slices import Slices
from ullage.core.evicting.preemption import NoPreemption, Preemption, PreemptionAnswer
from ullage.core.evicting.victims import budgets_of
from ullage.model.claim import Request
from ullage.model.nomination import Nomination
from ullage.model.rejection import Code
from ullage.service.allocations import Allocations, Outcome
from ullage.service.events import Events
from ullage.service.journal import Callback, Journal
from ullage.service.nominations import NominatedRequests
from ullage.service.store_port import PutAllocation


class Preemptions:
    """Use cases of requests that others give way to."""

    def __init__(
        self,
        allocator: Allocator,
        allocations: Allocations,
        nominated: NominatedRequests,
        journal: Journal,
        events: Events,
        clock: Callable[[], float],
        changed: Callable[[bool], None],
    ) -> None:
        self._allocator = allocator
        self._allocations = allocations
        self._nominated = nominated
        self._journal = journal
        self._events = events
        self._clock = clock
        self._changed = changed

    def alloc(self, request: Request, done: Callback) -> Outcome | Nomination:
        """Place a request and bind it, or evict for it; while they leave a repeat is answered the same.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        if self._allocator.held(request.uid) is not None:
            return self._allocations.alloc(request, done)
        now = self._clock()
        self._allocator.see(request)
        found = self._preempt(request, now)
        if isinstance(found, Preemption):
            return self._evict(request, found, now, done) if found.victims else self._allocations.alloc(request, done)
        known = self._nominated.renew(request, now) if found.code is Code.EVICTING else None
        if known is None:
            self._nominated.give_up(request)
        self._journal.write(then=done)
        if known is not None:
            return known
        self._allocations.refused[found.code] += 1
        return found

    def plan(self, request: Request) -> Preemption | NoPreemption:
        """Who would give way; nothing changes.

        Raises:
            NotFound: the pool is not known. Conflict: the request is placed. Unavailable: not ready.

        """
        return self._preempt(request, self._clock())

    def planning(self, request: Request) -> Slices[PreemptionAnswer]:
        """As `plan`, in slices, of the books as they are now."""
        allocator = self._allocator
        books, budgets = allocator.fleet.copy(), budgets_of(allocator.fleet, allocator.rules.min_available)
        return allocator.preempting(books, request, self._clock(), budgets)

    def nominations(self) -> tuple[Nomination, ...]:
        """The requests that room is kept for, the oldest first."""
        return self._nominated.all()

    def _preempt(self, request: Request, now: float) -> Preemption | NoPreemption:
        allocator = self._allocator
        return allocator.preempt(request, now, budgets_of(allocator.fleet, allocator.rules.min_available))

    def _evict(self, request: Request, found: Preemption, now: float, done: Callback) -> Nomination:
        nomination = found.nomination(request, now)
        leaving = [leaves for uid in found.uids if (leaves := self._allocator.release(uid)) is not None]
        self._nominated.tell(nomination)
        self._journal.write(*map(PutAllocation, leaving), self._nominated.put(nomination), then=done)
        self._changed(True)
        return nomination
