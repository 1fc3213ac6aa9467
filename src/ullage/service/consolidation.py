"""Makes room by moving allocations: owners are asked to leave, and their next places and the room are reserved.

All of it is one durable step. Nothing is ended here. The owner of an allocation that moves leaves, confirms it, and
requests again under the same uid. Then it gets the reserved place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import starmap

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices, at_once
from ullage.core.evicting.consolidation import consolidating
from ullage.core.evicting.move_check import rows_of, still_holds
from ullage.core.evicting.moves import Consolidation, Move, MoveQuestion, NoConsolidation
from ullage.core.placing.decision import Choice
from ullage.core.placing.nomination import Ahead
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, PlanChanged
from ullage.model.nomination import Nomination
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.nominations import NominatedRequests
from ullage.service.store_port import PutAllocation


@dataclass(frozen=True, slots=True)
class ConfirmedPlan:
    """A plan that held on the books of `fleet` at its `clock`, by these rules and with room reserved for `ahead`."""

    plan: Consolidation
    fleet: Fleet
    clock: int
    rules: Rules
    ahead: tuple[Ahead, ...]


class Consolidations:
    """Use cases of making room."""

    def __init__(self, context: ServiceContext, nominated: NominatedRequests) -> None:
        self._allocator, self._nominated = context.state.allocator, nominated
        self._journal, self._events = context.journal, context.events
        self._clock, self._changed = context.clock, context.changed

    def plan(self, request: Request, units: int, up_to: int | None) -> Consolidation | NoConsolidation:
        """Return who would move so that `units` requests like this one fit. Nothing changes.

        Raises:
            InvalidRequest, NotFound, Unavailable: as `FleetAllocator.move_question`.

        """
        question = self._allocator.move_question(request, units, self._clock(), up_to)
        return at_once(consolidating(self._allocator.fleet, self._allocator.rules, question))

    def planning(self, request: Request, units: int, up_to: int | None) -> Slices[Consolidation | NoConsolidation]:
        """Return the answer of `plan` in slices, on a copy of the present books.

        Raises:
            InvalidRequest, NotFound, Unavailable: as `FleetAllocator.move_question`.

        """
        question = self._allocator.move_question(request, units, self._clock(), up_to)
        self._allocator.fleet.emptied()  # one for all copies
        return consolidating(self._allocator.fleet.copy(), self._allocator.rules, question)

    def check_uids(self, uids: Sequence[str]) -> None:
        """Check that room can be reserved under these uids.

        Raises:
            Conflict: a uid holds cards, or room is reserved for it.

        """
        for uid in uids:
            if self._allocator.held(uid) is not None or self._allocator.nominations.of(uid) is not None:
                raise Conflict(f"{uid} holds cards, or room is reserved for it; name another uid", code="uid-taken")

    def carry_out(
        self, request: Request, uids: Sequence[str], up_to: int | None, done: Callback
    ) -> Consolidation | NoConsolidation:
        """Plan, and carry the plan out at once.

        Raises:
            InvalidRequest, NotFound, Unavailable: as `FleetAllocator.move_question`. Conflict: a uid holds cards, or
            room is reserved for it.

        """
        self.check_uids(uids)
        return self._carry_out(request, uids, self.plan(request, len(uids), up_to), done)

    def confirming(self, request: Request, up_to: int | None, found: Consolidation) -> Callable[[], ConfirmedPlan]:
        """Return what checks, on a copy of the present books, a plan that was made before: another thread may call it.

        It raises PlanChanged if the plan does not hold any more.

        Raises:
            NotFound, Unavailable: as `FleetAllocator.move_question`.

        """
        fleet, rules = self._allocator.fleet, self._allocator.rules
        question = self._allocator.move_question(request, len(found.units), self._clock(), up_to)
        ahead = tuple(question.nominations.all(fleet))
        confirmed = ConfirmedPlan(found, fleet, fleet.clock, rules=rules, ahead=ahead)
        copy = fleet.copy(apart=True)

        def confirm() -> ConfirmedPlan:
            if not still_holds(copy, rules, question, found):
                raise _plan_changed()
            return confirmed

        return confirm

    def carry_out_plan(
        self, request: Request, uids: Sequence[str], up_to: int | None, confirmed: ConfirmedPlan, done: Callback
    ) -> Consolidation | NoConsolidation:
        """Carry out a plan that held a moment ago, if what changed since then still allows it.

        Raises:
            NotFound, Unavailable: as `FleetAllocator.move_question`. Conflict: a uid is taken.
            PlanChanged: the plan does not hold any more; nothing is done.

        """
        self.check_uids(uids)
        question = self._allocator.move_question(request, len(uids), self._clock(), up_to)
        rows = self._changed_since(confirmed, question)
        if not still_holds(self._allocator.fleet, self._allocator.rules, question, confirmed.plan, rows=rows):
            raise _plan_changed()
        return self._carry_out(request, uids, confirmed.plan, done)

    def _changed_since(self, confirmed: ConfirmedPlan, question: MoveQuestion) -> set[int] | None:
        """Return the nodes that changed since a plan was confirmed; None for all, with other machines or rules."""
        fleet = self._allocator.fleet
        if fleet is not confirmed.fleet or self._allocator.rules is not confirmed.rules:
            return None
        reserved = rows_of(fleet, confirmed.ahead, question.nominations.all(fleet))
        return reserved.union(fleet.touched_since(confirmed.clock))

    @in_one_write
    def _carry_out(
        self, request: Request, uids: Sequence[str], found: Consolidation | NoConsolidation, done: Callback
    ) -> Consolidation | NoConsolidation:
        """Ask the owners that move to leave. Reserve their next places and, under these uids, the room that is made."""
        if isinstance(found, Consolidation):
            self._journal.write(*map(self._leave, found.moves))
            places = [(_again(move.allocation), move.to, True) for move in found.moves]
            for uid, unit in zip(uids, found.units, strict=True):
                places.append((replace(request, uid=uid), unit, bool(found.moves)))
                self._events.add("allocation.nominated", uid=uid, node=unit.node, gpus=unit.gpus)
            self._journal.write(*self._nominated.put(*starmap(self._hold, places)))
            self._changed(True)
        self._journal.write(then=done)
        return found

    def _leave(self, move: Move) -> PutAllocation:
        held, to = move.allocation, move.to
        leaving = self._allocator.release(held.id)
        assert leaving is not None, "who moves is in the ledger"
        place = "other cards there" if to.node == held.node else to.node
        text = f"{held.id} is to move from {held.node} to {place}, so that others fit"
        self._events.add(
            "allocation.moving", message=text, uid=held.id, node=held.node, gpus=held.gpus, to=to.node, to_gpus=to.gpus
        )
        return PutAllocation(leaving)

    def _hold(self, request: Request, place: Choice, owed: bool) -> Nomination:
        now, gpus = self._clock(), place.gpus
        return Nomination(request, place.node, now, gpus, charges=place.charges, hold=True, owed=owed)


def _plan_changed() -> PlanChanged:
    return PlanChanged("the books changed while the plan was made; nothing was moved, ask again")


def _again(held: Allocation) -> Request:
    """Return the request that an allocation that moves makes again."""
    return Request(held.id, held.requirement, held.claim or Claim())
