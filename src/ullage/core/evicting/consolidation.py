"""Plans which allocations to move so that requests for whole cards fit, in an order that can be carried out.

Only holders of a card that is freed move, never an allocation to make room for another move. They move the largest
first, each to where it fits tightest.

Every allocation that moves has room somewhere in the present books. Of all such plans the cheapest is taken
(`MoveCost`): for each node all sets of cards to free are compared, and units are spread over nodes so that the sum is
least. If an allocation of that plan finds no place after all, the next cheapest plan is tried. After some tries, room
is made for one unit after the other, each at least cost, and the plan says so. Quotas apply to the units of the plan
only: an allocation that moves holds as much as before.

Every trial is rolled back. Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import start
from ullage.core.books.slices import Slices, at_once, slice_begins
from ullage.core.evicting.move_order import in_order
from ullage.core.evicting.move_search import MoveHolders, MoveSearch, find_plan
from ullage.core.evicting.moves import (
    Consolidation,
    MoveContext,
    MoveCost,
    MovePlan,
    MoveQuestion,
    NoConsolidation,
    why_stays,
)
from ullage.core.evicting.protection import Shield
from ullage.core.evicting.victims import claim_of, workload_of
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import invalid
from ullage.model.rejection import Code, Cure, Rejection

MOST_UNITS = 128
"""At 1,000 nodes a plan for so many takes some seconds where there is none."""

_AT_ONCE = 500
"""Allocations of one slice."""


def consolidate(
    fleet: Fleet, rules: Rules, wanted: Request, units: int, now: float, **more: Any
) -> Consolidation | NoConsolidation:
    """Return the answer of `consolidating` at once; `more` are fields of the question.

    Raises:
        InvalidRequest: as `consolidating`.

    """
    return at_once(consolidating(fleet, rules, MoveQuestion(wanted, units, now, **more)))


def consolidating(fleet: Fleet, rules: Rules, question: MoveQuestion) -> Slices[Consolidation | NoConsolidation]:
    """Answer a question in slices. Between them trials are open: nobody else may use these books before the end.

    Raises:
        InvalidRequest: it does not ask for whole cards, or the number of units is out of range.

    """
    wanted, units = question.wanted, question.units
    check_consolidation(wanted, units)
    may_move, stays = yield from _movable(fleet, question)
    with reserving(fleet, question.nominations.all(fleet)):
        yield
        look = MoveContext.of(fleet, rules, question)
        holders = yield from MoveHolders.read(look, may_move)
        stays = stays | (yield from holders.without_room())
        for highest in sorted({claim_of(allocation).priority for allocation in may_move}) or [0]:
            plan = yield from find_plan(look, holders, highest)
            if len(plan.units) == units:
                over = over_quota(fleet, rules, wanted, [unit.gpus for unit in plan.units])
                if over:
                    return NoConsolidation(over, stays=stays)
                return (yield from _answer(look, plan, question.now, stays))
        most = (yield from MoveSearch.over(look, holders, highest)).most()
        if 0 < most < units:  # else they were planned one by one
            plan = yield from find_plan(replace(look, units=most), holders, highest)
        had = len(plan.units)
        empty = replace(look, fleet=fleet.emptied())
        cure = Cure.CAPACITY if empty.table(wanted).room.sum() >= units else Cure.NODE_CHANGE
        return NoConsolidation((Rejection(Code.NO_MOVES_HELP, cure, units, had),), stays=stays)


def check_consolidation(wanted: Request, units: int) -> None:
    """Refuse what no room is made for.

    Raises:
        InvalidRequest: it does not ask for whole cards, or the number of units is out of range.

    """
    if not wanted.requirement.whole:
        raise invalid("resreq", str(wanted.requirement), "room is made for whole cards: ask for them, such as gpu=8")
    check_units(units)


def check_units(units: int) -> None:
    """Refuse a number of requests that no room is made for at once.

    Raises:
        InvalidRequest: it is out of range.

    """
    if not 1 <= units <= MOST_UNITS:
        raise invalid("count", units, f"1 to {MOST_UNITS} is needed")


def _movable(fleet: Fleet, question: MoveQuestion) -> Slices[tuple[list[Allocation], dict[Shield, int]]]:
    """Return, in slices, those who may be moved, and how many may not for each reason."""
    found: list[Allocation] = []
    stays: Counter[Shield] = Counter()
    taken: Counter[tuple[str, str]] = Counter()
    everybody = sorted(fleet.ledger.values(), key=lambda allocation: (len(allocation.gpus), allocation.id))
    for number, allocation in enumerate(everybody):
        if slice_begins(number, _AT_ONCE):
            yield
        if not allocation.gpus:
            continue
        reason = why_stays(fleet, question, allocation)
        if reason is None:
            workload = workload_of(allocation)
            taken[workload] += 1
            reason = Shield.BUDGET if taken[workload] > question.budgets.left.get(workload, inf) else None
        if reason is None:
            found.append(allocation)
        else:
            stays[reason] += 1
    return found, dict(sorted(stays.items()))


def _answer(look: MoveContext, plan: MovePlan, now: float, stays: Mapping[Shield, int]) -> Slices[Consolidation]:
    moves = [move for move in plan.moves if move.to.gpus != move.allocation.gpus]
    moving = [move.allocation for move in moves]
    highest = max((claim_of(allocation).priority for allocation in moving), default=0)
    cost = MoveCost(highest, len(moving), sum(map(look.milli, moving)))
    age = max((now - start(allocation) for allocation in moving), default=0.0)
    ordered = yield from in_order(look, moves)
    return Consolidation(plan.units, ordered, cost, age, least=plan.least, stays=stays)
