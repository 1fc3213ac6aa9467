"""Which of those who may give way, in the order in which they are asked, have to: as few as let enough units fit.

One goes after the other until the units fit; then those without whom they still fit stay, the last first. Entries and
charges are as in `kernel/victims.py`, those of a victim together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import AFTER_CARDS, FIRST_CARD, MODES, OPEN, Rows
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.room import units_there
from ullage.core.kernel.shares import Flags
from ullage.core.kernel.victims import AFTER_CHARGE, CARD, FIRST_CHARGE, charge, hold, let_go


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
    """Who may give way, in the order in which they are asked.

    `first` is per victim its first entry, and one behind the last; `rows` per entry its node (-1: none that is known).
    `modes_left` are per charge the modes of those who hold its card when this victim and all before it are gone.
    """

    first: Rows
    rows: Rows
    entries: Rows
    charges: Rows
    modes_left: Rows


@lean
def _release(nodes: Rows, cards: Rows, supplies: Rows, leaving: Leaving, begin: int, end: int, modes: Rows) -> None:
    """A victim goes; the modes of its cards are kept."""
    rows, entries, charges = leaving.rows, leaving.entries, leaving.charges
    for entry in range(begin, end):
        row = rows[entry]
        if row >= 0:
            charge(nodes, cards, supplies, entries, charges, row, entry, -1)
            for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
                card = charges[at, CARD]
                if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
                    modes[at], cards[card, MODES] = cards[card, MODES], leaving.modes_left[at]


@lean
def _put_back(nodes: Rows, cards: Rows, supplies: Rows, leaving: Leaving, begin: int, end: int, before: Rows) -> None:
    """A victim stays."""
    rows, entries, charges = leaving.rows, leaving.entries, leaving.charges
    for entry in range(end - 1, begin - 1, -1):
        if rows[entry] >= 0:
            charge(nodes, cards, supplies, entries, charges, rows[entry], entry, 1)
            hold(nodes, cards, entries, charges, rows[entry], entry, before)


@lean
def _take_out(nodes: Rows, cards: Rows, supplies: Rows, leaving: Leaving, begin: int, end: int, before: Rows) -> None:
    """The victim that was put back last goes after all."""
    rows, entries, charges = leaving.rows, leaving.entries, leaving.charges
    for entry in range(begin, end):
        if rows[entry] >= 0:
            charge(nodes, cards, supplies, entries, charges, rows[entry], entry, -1)
            let_go(nodes, cards, entries, charges, rows[entry], entry, before)


@lean
def _restore(nodes: Rows, cards: Rows, supplies: Rows, leaving: Leaving, tried: int, go: Flags, modes: Rows) -> None:
    """The books as they were before the first of so many victims was released."""
    first, rows, entries, charges = leaving.first, leaving.rows, leaving.entries, leaving.charges
    for victim in range(tried - 1, -1, -1):
        for entry in range(first[victim + 1] - 1, first[victim] - 1, -1):
            row = rows[entry]
            if row >= 0:
                let_go(nodes, cards, entries, charges, row, entry, modes)
                if go[victim]:
                    charge(nodes, cards, supplies, entries, charges, row, entry, 1)


@lean
def _gained(nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, begin: int, end: int) -> int:
    """Follow the room of the nodes of these entries, which changed; by how much it grew."""
    gained = 0
    for entry in range(begin, end):
        row = leaving.rows[entry]
        if row >= 0:
            before = room[row]
            room[row] = 0
            if asked.said[row, OPEN]:
                room[row] = units_there(nodes, cards, row, asked.shape, asked.space, asked.store)
            gained += room[row] - before
    return gained


@lean
def _lost(nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, begin: int, end: int) -> int:
    """The same where room can only have shrunk; by how much it did."""
    some = False
    for entry in range(begin, end):
        row = leaving.rows[entry]
        some |= row >= 0 and room[row] > 0
    return -_gained(nodes, cards, asked, room, leaving, begin, end) if some else 0


@lean
def _count_anew(nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, end: int) -> None:
    """The room of the nodes of the first entries, each node once."""
    unknown = -1
    for entry in range(end):
        if leaving.rows[entry] >= 0:
            room[leaving.rows[entry]] = unknown
    for entry in range(end):
        row = leaving.rows[entry]
        if row >= 0 and room[row] == unknown:
            _gained(nodes, cards, asked, room, leaving, entry, entry + 1)


@lean
def _room_without(
    nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, known: int, modes: Rows
) -> int:
    """So many of the first victims go; how many units fit then."""
    first, total = leaving.first, 0
    for victim in range(known):
        _release(nodes, cards, asked.supplies, leaving, first[victim], first[victim + 1], modes)
    _count_anew(nodes, cards, asked, room, leaving, first[known])
    for row in range(len(room)):
        total += room[row]
    return total


@compiled
def _spare(
    nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, tried: int, spare: int, go: Flags
) -> None:
    """Of so many victims who went those stay, the last first, who cost no more units than there are to `spare`."""
    first, before = leaving.first, np.empty(len(leaving.charges), np.int64)
    for victim in range(tried - 1, -1, -1):
        begin, end = first[victim], first[victim + 1]
        _put_back(nodes, cards, asked.supplies, leaving, begin, end, before)
        spare -= _lost(nodes, cards, asked, room, leaving, begin, end)
        go[victim] = spare < 0
        if spare < 0:
            _take_out(nodes, cards, asked.supplies, leaving, begin, end, before)
            spare += _gained(nodes, cards, asked, room, leaving, begin, end)


@compiled
def fewest(
    nodes: Rows, cards: Rows, asked: AskedRows, room: Rows, leaving: Leaving, units: int, known: int, go: Flags
) -> bool:
    """Write who has to go, or give False if so many units do not fit even without all of them.

    So many of the first victims are `known` not to be enough. `room` is that of every node, and is changed.
    The books are as before.
    """
    first, tried, modes = leaving.first, known, np.empty(len(leaving.charges), np.int64)
    fit = _room_without(nodes, cards, asked, room, leaving, known, modes)
    while fit < units and tried < len(go):
        _release(nodes, cards, asked.supplies, leaving, first[tried], first[tried + 1], modes)
        fit += _gained(nodes, cards, asked, room, leaving, first[tried], first[tried + 1])
        tried += 1
    go[:tried] = True
    if fit >= units:
        _spare(nodes, cards, asked, room, leaving, tried, fit - units, go)
    _restore(nodes, cards, asked.supplies, leaving, tried, go, modes)
    return fit >= units
