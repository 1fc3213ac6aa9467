"""Whether a plan of moves still holds after the books changed.

The places of the plan stay: another plan may be cheaper by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.move_order import come_back, is_free, settle
from ullage.core.evicting.moves import Consolidation, Move, MoveContext, MoveQuestion, asked_again, why_stays
from ullage.core.evicting.victims import workload_of
from ullage.core.placing.candidates import refusals_on
from ullage.core.placing.decision import Choice
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.nomination import Ahead, Promised
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose
from ullage.core.verdict.cards import charges_on
from ullage.model.claim import Request

Here = Callable[[str], bool]
"""Returns whether a node is looked at."""


def still_holds(
    fleet: Fleet, rules: Rules, question: MoveQuestion, found: Consolidation, rows: Collection[int] | None = None
) -> bool:
    """Return whether all who move may still move, each finds room in its turn, and the units fit then, not before.

    With `rows` the plan held before on these books, and since then only these nodes changed: the turns on other nodes
    are not looked at.
    """
    if not _may_move(fleet, question, found.moves):
        return False

    def here(node: str) -> bool:
        return rows is None or fleet.row_of.get(node) in rows

    if not all(_known(fleet, place) for place in found.places if here(place.node)):
        return False
    with reserving(fleet, question.nominations.all(fleet)):
        look = MoveContext.of(fleet, rules, replace(question, units=len(found.units)))
        if found.moves and _fits_without(look):
            return False
        if not _in_that_order(look, found.moves, here) or not _all_fit(look, found, here):
            return False
        return not over_quota(fleet, rules, question.wanted, [unit.gpus for unit in found.units])


def rows_of(fleet: Fleet, before: Iterable[Ahead], after: Iterable[Ahead]) -> set[int]:
    """Return the nodes on which other room is reserved than before; an entry that did not change is the same object."""
    old, new = ({id(each): each for each in entries} for entries in (before, after))
    changed = [entry for key, entry in (old | new).items() if (key in old) != (key in new)]
    nodes = (
        node
        for entry in changed
        for node in ([place.node for place in entry.places] if isinstance(entry, Promised) else [entry.node])
    )
    return {fleet.row_of[node] for node in nodes if node in fleet.row_of}


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


def _in_that_order(look: MoveContext, moves: Iterable[Move], here: Here) -> bool:
    """Return whether each has room when its turn comes, those with a gap after they left."""
    out: list[Move] = []
    with trial(look.fleet):
        for move in moves:
            comes_here = here(move.to.node)
            if not comes_here and not here(move.allocation.node):
                continue
            look.fleet.release(move.allocation.id)
            if not comes_here:
                come_back(look, out)
                continue
            if not move.gap and not is_free(look, move):
                return False
            settle(look, move, out)
    return not out


def _all_fit(look: MoveContext, found: Consolidation, here: Here) -> bool:
    """Return whether the units have their places once all have left, together with the places of those who move."""
    moves = [move for move in found.moves if here(move.to.node) or here(move.allocation.node)]
    next_move = {move.allocation.id: move for move in moves if here(move.to.node)}
    with trial(look.fleet):
        for move in moves:
            look.fleet.release(move.allocation.id)
        for number, unit in enumerate(found.units):
            if not here(unit.node):
                continue
            if not _has_room(look, look.wanted, unit):
                return False
            look.charge_unit(unit, f"unit {number}")
        for each in look.in_turn(move.allocation for move in next_move.values()):
            if not _has_room(look, asked_again(each), next_move[each.id].to):
                return False
            look.charge_moved(next_move[each.id])
    return True


def _has_room(look: MoveContext, request: Request, place: Choice) -> bool:
    """Return whether a request fits there, and would be charged as the plan says."""
    fleet = look.fleet
    cards = [fleet.card_of[uuid] for uuid in place.gpus]
    if refusals_on(fleet, look.rules, request, cards):
        return False
    return not place.charges or charges_on(fleet, cards, request.requirement) == place.charges


def _known(fleet: Fleet, place: Choice) -> bool:
    row = fleet.row_of.get(place.node)
    return row is not None and all(fleet.card_of.get(uuid, -1) in fleet.cards_on(row) for uuid in place.gpus)
