"""Requests that evict others of lower priority.

Victims are marked as releasing and their room is reserved for the request, in one durable step. The request gets its
cards when it is made again after the victims have left.
"""

from __future__ import annotations

from ullage.core.books.slices import Slices
from ullage.core.evicting.preemption import NoPreemption, Preemption, PreemptionAnswer
from ullage.core.evicting.victims import Budgets, budgets_of
from ullage.core.placing.decision import Choice, Refusal
from ullage.model.claim import Request
from ullage.model.error import InvalidRequest, NotFound, PlanChanged
from ullage.model.nomination import Nomination
from ullage.model.rejection import Code
from ullage.service.allocations import AllocationRequests, Outcome
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.nominations import NominatedRequests
from ullage.service.store_port import PutAllocation


class Preemptions:
    """Use cases of requests with preemption."""

    def __init__(self, context: ServiceContext, allocations: AllocationRequests, nominated: NominatedRequests) -> None:
        self._allocator, self._allocations, self._nominated = context.state.allocator, allocations, nominated
        self._journal, self._events = context.journal, context.events
        self._clock, self._changed = context.clock, context.changed

    @in_one_write
    def alloc(self, request: Request, done: Callback) -> Outcome | Nomination:
        """Place a request and bind it, or evict for it. While the victims leave, a repeat has the same answer.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        if self._allocator.held(request.uid) is not None:
            return self._allocations.alloc(request, done)
        return self.carry_out(request, self.plan(request), done)

    def searches_for(self, request: Request) -> bool:
        """Return whether a request needs victims: it is not placed, does not fit, and none are leaving for it.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        if self._allocator.held(request.uid) is not None:
            return False
        without = self._allocator.place_or_wait(request)
        return isinstance(without, Refusal) and not isinstance(without, NoPreemption) and without.curable

    @in_one_write
    def carry_out(self, request: Request, found: PreemptionAnswer, done: Callback) -> Outcome | Nomination:
        """Do as `alloc`, with an answer of `plan` or `planning`, as far as the books still allow it.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready. PlanChanged: the victims do not make it fit any
            more, or do not exist; nothing is done.

        """
        if self._allocator.held(request.uid) is not None:
            return self._allocations.alloc(request, done)
        without = self._allocator.place_or_wait(request)
        if isinstance(without, Choice):
            return self._allocations.alloc(request, done)
        if isinstance(without, NoPreemption):
            return self._wait(request, done)
        if isinstance(found, NoPreemption) and found.code is not Code.EVICTING:
            return self._refuse(request, found, done)
        return self._evict(request, self._helping(request, found), done)

    def plan(self, request: Request) -> Preemption | NoPreemption:
        """Return who would be evicted. Nothing changes.

        Raises:
            NotFound: the pool is not known. Conflict: the request is placed. Unavailable: not ready.

        """
        return self._allocator.preempt(request, self._clock(), self._budgets())

    def planning(self, request: Request) -> Slices[PreemptionAnswer]:
        """Return the answer of `plan` in slices, on a copy of the present books.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready. PlanChanged: the request was placed meanwhile.

        """
        allocator = self._allocator
        if allocator.held(request.uid) is not None:
            raise PlanChanged(f"{request.uid} got cards while it waited for the search; ask again")
        return allocator.preempting(allocator.fleet.copy(), request, self._clock(), self._budgets())

    def with_cards(self, request: Request, found: PreemptionAnswer) -> PreemptionAnswer:
        """Return an answer of `planning` with the cards that `carry_out` would reserve: those of the present books.

        A copy of the books places without what is learned. An answer that no longer holds stays as it was found.
        """
        try:
            return self._helping(request, found)
        except PlanChanged:
            return found

    def nominations(self) -> tuple[Nomination, ...]:
        """Return the nominations, the oldest first."""
        return self._nominated.all()

    def _budgets(self) -> Budgets:
        return budgets_of(self._allocator.fleet, self._allocator.rules.min_available)

    def _helping(self, request: Request, found: PreemptionAnswer) -> Preemption:
        """Return those of the victims of an answer that make the request fit now."""
        changed = PlanChanged("the victims changed meanwhile; nothing was evicted, ask again")
        if isinstance(found, NoPreemption) or not found.victims:
            raise changed
        check, node = self._allocator.check_single_node_preempt, found.choice.node
        try:
            helping = check(request, node, found.uids, self._clock(), budgets=self._budgets())
        except (InvalidRequest, NotFound) as error:
            raise changed from error
        if isinstance(helping, NoPreemption):
            raise changed
        return helping

    def _wait(self, request: Request, done: Callback) -> Nomination:
        known = self._nominated.renew(request, self._clock())
        assert known is not None, "only a nominated request waits"
        self._journal.write(then=done)
        return known

    def _refuse(self, request: Request, found: NoPreemption, done: Callback) -> NoPreemption:
        self._allocator.see(request)
        self._nominated.give_up(request)
        self._journal.write(then=done)
        self._allocations.refused[found.code] += 1
        return found

    def _evict(self, request: Request, found: Preemption, done: Callback) -> Nomination:
        self._allocator.see(request)
        nomination = found.nomination(request, self._clock())
        leaving = [leaves for uid in found.uids if (leaves := self._allocator.release(uid)) is not None]
        self._nominated.record(nomination)
        self._journal.write(*map(PutAllocation, leaving), *self._nominated.put(nomination), then=done)
        self._changed(True)
        return nomination
