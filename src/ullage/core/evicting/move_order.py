"""The order in which moves can be made, each with room in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.core.books.slices import Slices, slice_begins
from ullage.core.books.trial import trial
from ullage.core.evicting.moves import Move, MoveContext, asked_again
from ullage.core.placing.candidates import refusals_on

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
            settle(look, move, out)
    return tuple(made)


def _first_to_go(look: MoveContext, pending: Sequence[Move]) -> Slices[Move | None]:
    for number, move in enumerate(pending):
        if slice_begins(number, _AT_ONCE):
            yield
        with trial(look.fleet):
            look.fleet.release(move.allocation.id)
            if is_free(look, move):
                return move
    return None


def settle(look: MoveContext, move: Move, out: list[Move]) -> None:
    """Charge an allocation, which left, at its next place, or enter it as `out` if it has to wait for that."""
    if move.gap:
        out.append(move)
    else:
        look.charge_moved(move)
    come_back(look, out)


def come_back(look: MoveContext, out: list[Move]) -> None:
    """Charge those who are out whose next place is free by now."""
    for back in [move for move in out if is_free(look, move)]:
        look.charge_moved(back)
        out.remove(back)


def is_free(look: MoveContext, move: Move) -> bool:
    """Return whether there is room for a move that has left its place."""
    cards = [look.fleet.card_of[uuid] for uuid in move.to.gpus]
    return not refusals_on(look.fleet, look.rules, asked_again(move.allocation), cards)
