"""The order in which moves can be made, each with room when its turn comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.core.books.slices import Slices
from ullage.core.books.trial import trial
from ullage.core.evicting.moving import Move, MoveContext, asked_again, moved
from ullage.core.placing.candidates import refusals_on

_AT_ONCE = 8
"""Moves that one slice looks at."""


def in_order(look: MoveContext, moves: Sequence[Move]) -> Slices[tuple[Move, ...]]:
    """Return the moves so that each finds room when its turn comes; who cannot wait for that leaves with a gap."""
    fleet, pending = look.fleet, list(moves)
    made: list[Move] = []
    out: list[Move] = []
    with trial(fleet):
        while pending:
            free = yield from _first_to_go(look, pending)
            if free is not None:
                fleet.release(free.allocation.id)
                fleet.charge(moved(free.allocation, free.to), force=True)
            else:
                free = replace(
                    min(pending, key=lambda move: (look.milli(move.allocation), move.allocation.id)), gap=True
                )
                fleet.release(free.allocation.id)
                out.append(free)
            pending = [move for move in pending if move.allocation.id != free.allocation.id]
            made.append(free)
            back_again(look, out)
    return tuple(made)


def back_again(look: MoveContext, out: list[Move]) -> None:
    """Charge those who left with a gap and whose next place is free now, and take them from the list."""
    for back in [move for move in out if free_for(look, move)]:
        look.fleet.charge(moved(back.allocation, back.to), force=True)
        out.remove(back)


def free_for(look: MoveContext, move: Move) -> bool:
    """Return whether there is room for a move that has left its place."""
    cards = [look.fleet.card_of[uuid] for uuid in move.to.gpus]
    return not refusals_on(look.fleet, look.rules, asked_again(move.allocation), cards)


def _first_to_go(look: MoveContext, pending: Sequence[Move]) -> Slices[Move | None]:
    for number, move in enumerate(pending):
        if number % _AT_ONCE == 0:
            yield
        if _can_go(look, move):
            return move
    return None


def _can_go(look: MoveContext, move: Move) -> bool:
    with trial(look.fleet):
        look.fleet.release(move.allocation.id)
        return free_for(look, move)
