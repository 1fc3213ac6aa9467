"""The order in which moves can be made, each with room in its turn; and whether a plan still holds later.

The places of a plan stay when it is checked again: another plan may be cheaper by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices
from ullage.core.books.trial import trial
from ullage.core.evicting.moves import Consolidation, Move, MoveContext, MoveQuestion, asked_again, why_stays
from ullage.core.evicting.victims import workload_of
from ullage.core.placing.candidates import refusals_on
from ullage.core.placing.decision import Choice
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose
from ullage.core.verdict.cards import charges_on
from ullage.model.claim import Request

_AT_ONCE = 8
"""Moves that one slice looks at."""


def in_order(look: MoveContext, moves: Sequence[Move]) -> Slices[tuple[Move, ...]]:
    """Return the moves so that each finds room when its turn comes; who cannot wait for that leaves with a gap."""
    pending, made = list(moves), list[Move]()
    out: list[Move] = []
    with trial(look.fleet):
        while pending:
            move = yield from _first_to_go(look, pending)
            if move is None:
                smallest = min(pending, key=lambda move: (look.milli(move.allocation), move.allocation.id))
                move = replace(smallest, gap=True)
            pending = [other for other in pending if other.allocation.id != move.allocation.id]
            made.append(move)
            look.fleet.release(move.allocation.id)
            _settle(look, move, out)
    return tuple(made)


def _first_to_go(look: MoveContext, pending: Sequence[Move]) -> Slices[Move | None]:
    for number, move in enumerate(pending):
        if number % _AT_ONCE == 0:
            yield
        with trial(look.fleet):
            look.fleet.release(move.allocation.id)
            if _is_free(look, move):
                return move
    return None


def _settle(look: MoveContext, move: Move, out: list[Move]) -> None:
    """Charge an allocation, which left, at its next place, or enter it as `out` if it has to wait for that.

    Those who are out come back as soon as their next place is free.
    """
    if move.gap:
        out.append(move)
    else:
        look.charge_moved(move)
    for back in [move for move in out if _is_free(look, move)]:
        look.charge_moved(back)
        out.remove(back)


def _is_free(look: MoveContext, move: Move) -> bool:
    """Return whether there is room for a move that has left its place."""
    cards = [look.fleet.card_of[uuid] for uuid in move.to.gpus]
    return not refusals_on(look.fleet, look.rules, asked_again(move.allocation), cards)


# --- the same after the books changed ---


def still_holds(fleet: Fleet, rules: Rules, question: MoveQuestion, found: Consolidation) -> bool:
    """Return whether all who move may still move, each finds room in its turn, and the units fit then, not before."""
    wanted = question.wanted
    if not _may_move(fleet, question, found.moves):
        return False
    with reserving(fleet, question.nominations.all(fleet)):
        look = MoveContext.of(fleet, rules, replace(question, units=len(found.units)))
        if found.moves and _fits_without(look):
            return False
        if not _in_that_order(look, found.moves) or not _all_fit(look, found):
            return False
        return not over_quota(fleet, rules, wanted, [unit.gpus for unit in found.units])


def _may_move(fleet: Fleet, question: MoveQuestion, moves: Iterable[Move]) -> bool:
    left = question.budgets.left
    moving = [move.allocation for move in moves]
    if any(fleet.ledger.get(each.id) != each or why_stays(fleet, question, each) for each in moving):
        return False
    return all(number <= left.get(key, number) for key, number in Counter(map(workload_of, moving)).items())


def _fits_without(look: MoveContext) -> bool:
    """Return whether nobody has to move any more."""
    with trial(look.fleet):
        for number in range(look.units):
            choice = choose(look.fleet, look.rules, look.wanted)
            if choice is None:
                return False
            look.charge_unit(choice, f"unit {number}")
    return True


def _in_that_order(look: MoveContext, moves: Iterable[Move]) -> bool:
    """Return whether each has room when its turn comes, those with a gap after they left."""
    out: list[Move] = []
    with trial(look.fleet):
        for move in moves:
            if not _known(look.fleet, move.to):
                return False
            look.fleet.release(move.allocation.id)
            if not move.gap and not _is_free(look, move):
                return False
            _settle(look, move, out)
    return not out


def _all_fit(look: MoveContext, found: Consolidation) -> bool:
    """Return whether the units have their places once all have left, together with the places of those who move."""
    next_move = {move.allocation.id: move for move in found.moves}
    with trial(look.fleet):
        for uid in next_move:
            look.fleet.release(uid)
        for number, unit in enumerate(found.units):
            if not _has_room(look, look.wanted, unit):
                return False
            look.charge_unit(unit, f"unit {number}")
        for each in look.in_turn(move.allocation for move in found.moves):
            if not _has_room(look, asked_again(each), next_move[each.id].to):
                return False
            look.charge_moved(next_move[each.id])
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
