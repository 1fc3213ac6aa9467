"""Checks whether a plan of moves can still be carried out after the books changed.

The same functions check it that found it. The places of the plan stay: another plan may be cheaper now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.consolidation import as_moves_are_judged
from ullage.core.evicting.movable import why_stays
from ullage.core.evicting.move_order import back_again, free_for
from ullage.core.evicting.moving import Consolidation, Move, MoveContext, MoveQuestion, asked_again, in_turn, moved
from ullage.core.evicting.victims import workload_of
from ullage.core.placing.candidates import refusals_on
from ullage.core.placing.decision import Choice
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose, placement_of
from ullage.core.verdict.cards import charges_on
from ullage.model.allocation import Allocation
from ullage.model.claim import Request


def still_holds(fleet: Fleet, rules: Rules, question: MoveQuestion, found: Consolidation) -> bool:
    """Return whether all who move may still move, each finds room in its turn, and the units fit then, not before."""
    wanted = question.wanted
    if not _may_move(fleet, question, found.moves):
        return False
    with reserving(fleet, question.nominations.all(fleet)):
        look = MoveContext(fleet, as_moves_are_judged(rules), wanted, len(found.units), tries=0)
        if found.moves and _fits_without(look):
            return False
        if not _in_that_order(look, found.moves) or not _all_fit(look, found):
            return False
        return not over_quota(fleet, rules, wanted, [unit.gpus for unit in found.units])


def _may_move(fleet: Fleet, question: MoveQuestion, moves: Iterable[Move]) -> bool:
    left = question.budgets.left
    moving = [move.allocation for move in moves]
    if any(
        fleet.ledger.get(each.id) != each or why_stays(fleet, each, question.now, question.up_to) for each in moving
    ):
        return False
    return all(number <= left.get(key, number) for key, number in Counter(map(workload_of, moving)).items())


def _fits_without(look: MoveContext) -> bool:
    """Return whether nobody has to move any more."""
    with trial(look.fleet):
        for number in range(look.units):
            choice = choose(look.fleet, look.rules, look.wanted)
            if not isinstance(choice, Choice):
                return False
            look.fleet.charge(_unit(look, choice, number), force=True)
    return True


def _in_that_order(look: MoveContext, moves: Iterable[Move]) -> bool:
    """Return whether each has room when its turn comes, those with a gap after they left."""
    fleet = look.fleet
    out: list[Move] = []
    with trial(fleet):
        for move in moves:
            if not _known(fleet, move.to):
                return False
            fleet.release(move.allocation.id)
            if move.gap:
                out.append(move)
            elif free_for(look, move):
                fleet.charge(moved(move.allocation, move.to), force=True)
            else:
                return False
            back_again(look, out)
    return not out


def _all_fit(look: MoveContext, found: Consolidation) -> bool:
    """Return whether the units have their places once all have left, together with the places of those who move."""
    fleet, next_place = look.fleet, {move.allocation.id: move.to for move in found.moves}
    with trial(fleet):
        for uid in next_place:
            fleet.release(uid)
        for number, unit in enumerate(found.units):
            if not _has_room(look, look.wanted, unit):
                return False
            fleet.charge(_unit(look, unit, number), force=True)
        for each in in_turn(look, [move.allocation for move in found.moves]):
            place = next_place[each.id]
            if not _has_room(look, asked_again(each), place):
                return False
            fleet.charge(moved(each, place), force=True)
    return True


def _has_room(look: MoveContext, request: Request, place: Choice) -> bool:
    """Return whether a request fits there, and would be charged as the plan says."""
    fleet = look.fleet
    if not _known(fleet, place):
        return False
    cards = [fleet.card_of[uuid] for uuid in place.gpus]
    if refusals_on(fleet, look.rules, request, cards):
        return False
    return not place.charges or charges_on(fleet, cards, request.requirement) == place.charges


def _known(fleet: Fleet, place: Choice) -> bool:
    row = fleet.row_of.get(place.node)
    return row is not None and all(fleet.card_of.get(uuid, -1) in fleet.cards_on(row) for uuid in place.gpus)


def _unit(look: MoveContext, choice: Choice, number: int) -> Allocation:
    placement = placement_of(look.fleet, look.wanted.requirement, choice)
    asked, uid = look.wanted.requirement, f"unit {number}"  # no request has such a name
    return Allocation(uid, choice.node, asked, choice.gpus, charges=choice.charges, placement=placement)
