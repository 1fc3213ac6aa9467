"""Plans which allocations to move so that requests for whole cards fit, in an order that can be carried out.

An allocation that moves leaves its place and comes back at another one. Only holders of a card that is freed move,
never an allocation to make room for another move. They move the largest first, each to where it fits tightest.

Every allocation that moves has room somewhere in the present books. Of all such plans the cheapest is taken
(`MoveCost`): for each node all sets of cards to free are compared, and units are spread over nodes so that the sum is
least. If an allocation of that plan finds no place after all, the next cheapest plan is tried. After some tries, room
is made for one unit after the other, each at least cost, and the plan says so. Quotas apply to the units of the plan
only: an allocation that moves holds as much as before.

Every trial is rolled back. Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import start
from ullage.core.books.slices import Slices, at_once
from ullage.core.evicting.holders import MoveHolders
from ullage.core.evicting.movable import Stays, movable, priority_of
from ullage.core.evicting.move_order import in_order
from ullage.core.evicting.move_search import MoveSearch, find_plan
from ullage.core.evicting.moving import (
    Consolidation,
    MoveContext,
    MoveCost,
    MovePlan,
    MoveQuestion,
    NoConsolidation,
    table_for,
)
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.claim import Request
from ullage.model.error import invalid
from ullage.model.rejection import Code, Cure, Rejection

MOST_UNITS = 128
"""At 1,000 nodes a plan for so many takes some seconds where there is none."""


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
    may_move, stays = yield from movable(fleet, question.now, question.up_to, question.budgets)
    with reserving(fleet, question.nominations.all(fleet)):
        yield
        look = MoveContext(fleet, as_moves_are_judged(rules), wanted, units, question.tries)
        holders = yield from MoveHolders.read(look, may_move)
        stays = stays | (yield from holders.without_room())
        for highest in sorted({priority_of(allocation) for allocation in may_move}) or [0]:
            plan = yield from find_plan(look, holders, highest)
            if len(plan.units) == units:
                over = over_quota(fleet, rules, wanted, [unit.gpus for unit in plan.units])
                if over:
                    return NoConsolidation(over, stays=stays)
                return (yield from _told(look, plan, question.now, stays))
        fewer = min((yield from MoveSearch.over(look, holders, highest)).most(), units - 1)
        if fewer and not plan.units:
            plan = yield from find_plan(replace(look, units=fewer), holders, highest)
        had = len(plan.units)
        empty = replace(look, fleet=fleet.emptied())
        cure = Cure.CAPACITY if table_for(empty, wanted).room.sum() >= units else Cure.NODE_CHANGE
        return NoConsolidation((Rejection(Code.NO_MOVES_HELP, cure, units, had),), stays=stays)


def as_moves_are_judged(rules: Rules) -> Rules:
    """Return the rules without quotas, since who moves holds as much as before, and with the tightest fit."""
    return replace(rules, quotas=Quotas(), strategy="best-fit")


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


def _told(look: MoveContext, plan: MovePlan, now: float, stays: Mapping[Stays, int]) -> Slices[Consolidation]:
    moves = [move for move in plan.moves if move.to.gpus != move.allocation.gpus]
    moving = [move.allocation for move in moves]
    cost = MoveCost(max(map(priority_of, moving), default=0), len(moving), sum(map(look.milli, moving)))
    age = max((now - start(allocation) for allocation in moving), default=0.0)
    ordered = yield from in_order(look, moves)
    return Consolidation(plan.units, ordered, cost, age, plan.least, stays)
