"""Which of those who may give way, in the order in which they are asked, have to: as few as let enough units fit.

One goes after the other until the units fit; then those without which they still fit come back, the last first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import AFTER_CARDS, FIRST_CARD, MODES, OPEN, Flags, Rows
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.occupants import (
    AFTER_CHARGE,
    CARD,
    FIRST_CHARGE,
    ROW,
    HolderRows,
    Holders,
    charge,
    let_go,
    put_in,
    take_out,
)
from ullage.core.kernel.room import units_there


class AskedRows(NamedTuple):
    """What is to fit: the shape of a unit, room for a node's cards, and what the table says of each node.

    `store` holds the zones of machines, and `supplies` what is free in them.
    """

    shape: Rows
    space: Rows
    said: Rows
    store: Rows
    supplies: Rows


class Leaving(NamedTuple):
    """Who may give way, in the order in which they are asked; the entries and charges of a victim follow each other.

    `first` is per victim its first entry, and one behind the last. `modes_left` are per charge the modes of those who
    hold its card when this victim and all before it are gone.
    """

    first: Rows
    entries: Rows
    charges: Rows
    modes_left: Rows


@lean
def _release(holders: Holders, leaving: Leaving, begin: int, end: int) -> None:
    """Release a victim, and remember the modes of its cards."""
    nodes, cards, entries, charges = holders.nodes, holders.cards, holders.entries, holders.charges
    for entry in range(begin, end):
        row = entries[entry, ROW]
        if row >= 0:
            charge(holders, entry, -1)
            for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
                card = charges[at, CARD]
                if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
                    holders.before[at], cards[card, MODES] = cards[card, MODES], leaving.modes_left[at]


@lean
def _restore(holders: Holders, first: Rows, tried: int, go: Flags) -> None:
    """Restore the books to before the first of so many victims was released."""
    for victim in range(tried - 1, -1, -1):
        for entry in range(first[victim + 1] - 1, first[victim] - 1, -1):
            if holders.entries[entry, ROW] >= 0:
                let_go(holders, entry)
                if go[victim]:
                    charge(holders, entry, 1)


@lean
def _gained(holders: Holders, asked: AskedRows, room: Rows, begin: int, end: int) -> int:
    """Update the room of the changed nodes of these entries. Return by how much it grew."""
    gained = 0
    for entry in range(begin, end):
        row = holders.entries[entry, ROW]
        if row >= 0:
            before = room[row]
            room[row] = 0
            if asked.said[row, OPEN]:
                room[row] = units_there(holders.nodes, holders.cards, row, asked.shape, asked.space, asked.store)
            gained += room[row] - before
    return gained


@lean
def _lost(holders: Holders, asked: AskedRows, room: Rows, begin: int, end: int) -> int:
    """Update room that can only have shrunk. Return by how much it did."""
    some = False
    for entry in range(begin, end):
        row = holders.entries[entry, ROW]
        some |= row >= 0 and room[row] > 0
    return -_gained(holders, asked, room, begin, end) if some else 0


@lean
def _room_without(holders: Holders, asked: AskedRows, room: Rows, leaving: Leaving, known: int) -> int:
    """Release so many of the first victims. Return how many units fit then; the room of each node is counted once."""
    first, total, unknown = leaving.first, 0, -1
    for victim in range(known):
        _release(holders, leaving, first[victim], first[victim + 1])
    for entry in range(first[known]):
        if holders.entries[entry, ROW] >= 0:
            room[holders.entries[entry, ROW]] = unknown
    for entry in range(first[known]):
        row = holders.entries[entry, ROW]
        if row >= 0 and room[row] == unknown:
            _gained(holders, asked, room, entry, entry + 1)
    for row in range(len(room)):
        total += room[row]
    return total


@compiled
def _put_back(holders: Holders, asked: AskedRows, room: Rows, first: Rows, tried: int, spare: int, go: Flags) -> None:
    """Put victims back, the last of so many first, while there are units to `spare`."""
    for victim in range(tried - 1, -1, -1):
        begin, end = first[victim], first[victim + 1]
        for entry in range(end - 1, begin - 1, -1):
            if holders.entries[entry, ROW] >= 0:
                put_in(holders, entry)
        spare -= _lost(holders, asked, room, begin, end)
        go[victim] = spare < 0
        if spare < 0:
            for entry in range(begin, end):
                if holders.entries[entry, ROW] >= 0:
                    take_out(holders, entry)
            spare += _gained(holders, asked, room, begin, end)


@compiled
def fewest(
    nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, units: int, known: int, go: Flags
) -> bool:
    """Write who has to go, or give False if so many units do not fit even without all of them.

    So many of the first victims are `known` not to be enough. `room` is that of every node, and is changed.
    The books are as before.
    """
    first, tried = leaving.first, known
    at_release, at_return = np.empty(len(leaving.charges), np.int64), np.empty(len(leaving.charges), np.int64)
    released = HolderRows(nodes, cards, asked.supplies, leaving.entries, leaving.charges, at_release)
    fit = _room_without(released, asked, room, leaving, known)
    while fit < units and tried < len(go):
        _release(released, leaving, first[tried], first[tried + 1])
        fit += _gained(released, asked, room, first[tried], first[tried + 1])
        tried += 1
    go[:tried] = True
    if fit >= units:
        returned = HolderRows(nodes, cards, asked.supplies, leaving.entries, leaving.charges, at_return)
        _put_back(returned, asked, room, first, tried, fit - units, go)
    _restore(released, first, tried, go)
    return fit >= units
