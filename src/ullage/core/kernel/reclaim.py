"""Which of those who may give way, in the order in which they are asked, have to: as few as let enough units fit.

One goes after the other until the units fit; then those without whom they still fit stay, the last first. Entries and
charges are as in `kernel/victims.py`, those of a victim together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ullage.core.kernel.columns import AFTER_CARDS, FIRST_CARD, MODES, OPEN, Rows
from ullage.core.kernel.compiled import code_of, compiled
from ullage.core.kernel.room import units_there
from ullage.core.kernel.shares import Flags
from ullage.core.kernel.victims import AFTER_CHARGE, CARD, FIRST_CHARGE, charge, hold, let_go

Asked = tuple[Rows, Rows, Rows]
"""The shape, room for a node's cards, and what the table says of each node."""

Leaving = tuple[Rows, Rows, Rows, Rows, Rows]
"""Per victim its first entry, and one behind the last; per entry its node (-1: none that is known); entries; charges;
per charge the modes of those who hold its card when this victim and all before it are gone."""


@compiled
def _release(
    nodes: Rows, cards: Rows, asked: Asked, room: Rows, leaving: Leaving, begin: int, end: int, modes: Rows
) -> int:
    """A victim goes; how many units more fit. The modes of its cards are kept."""
    _, rows, entries, charges, stay = leaving
    gained = 0
    for entry in range(begin, end):
        row = rows[entry]
        if row < 0:
            continue
        charge(nodes, cards, entries, charges, row, entry, -1)
        for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
            card = charges[at, CARD]
            if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
                modes[at], cards[card, MODES] = cards[card, MODES], stay[at]
        gained += _gained(nodes, cards, asked, room, row)
    return gained


@compiled
def _put_back(
    nodes: Rows, cards: Rows, asked: Asked, room: Rows, leaving: Leaving, begin: int, end: int, before: Rows
) -> int:
    """A victim stays; how many units fewer fit."""
    _, rows, entries, charges, _ = leaving
    lost = 0
    for entry in range(end - 1, begin - 1, -1):
        row = rows[entry]
        if row >= 0:
            charge(nodes, cards, entries, charges, row, entry, 1)
            hold(nodes, cards, entries, charges, row, entry, before)
            lost -= _gained(nodes, cards, asked, room, row)
    return lost


@compiled
def _take_out(
    nodes: Rows, cards: Rows, asked: Asked, room: Rows, leaving: Leaving, begin: int, end: int, before: Rows
) -> int:
    """The victim that was put back last goes after all; how many units more fit."""
    _, rows, entries, charges, _ = leaving
    gained = 0
    for entry in range(begin, end):
        row = rows[entry]
        if row >= 0:
            charge(nodes, cards, entries, charges, row, entry, -1)
            let_go(nodes, cards, entries, charges, row, entry, before)
            gained += _gained(nodes, cards, asked, room, row)
    return gained


@compiled
def _restore(nodes: Rows, cards: Rows, leaving: Leaving, tried: int, go: Flags, modes: Rows) -> None:
    """The books as they were before the first of so many victims was released."""
    first, rows, entries, charges, _ = leaving
    for victim in range(tried - 1, -1, -1):
        for entry in range(first[victim + 1] - 1, first[victim] - 1, -1):
            row = rows[entry]
            if row >= 0:
                let_go(nodes, cards, entries, charges, row, entry, modes)
                if go[victim]:
                    charge(nodes, cards, entries, charges, row, entry, 1)


@compiled
def _gained(nodes: Rows, cards: Rows, asked: Asked, room: Rows, row: int) -> int:
    """Follow the room of a node that changed; by how much it grew."""
    shape, space, said = asked
    before = room[row]
    room[row] = units_there(nodes, cards, row, shape, space) if said[row, OPEN] else 0
    return int(room[row] - before)


@cache
def reclaiming() -> Callable[[Rows, Rows, Asked, Rows, Leaving, int, Flags], bool]:
    """Compile the loop over victims."""
    key = code_of(_release, _put_back, _take_out, _restore, _gained, charge, hold, let_go, units_there)

    @compiled
    def fewest(nodes: Rows, cards: Rows, asked: Asked, room: Rows, leaving: Leaving, units: int, go: Flags) -> bool:
        """Write who has to go, or give False if so many units do not fit even without all of them.

        `room` is that of every node, and is changed. The books are as before.
        """
        key  # noqa: B018  part of the cache key, see `code_of`
        first, charges, tried = leaving[0], leaving[3], 0
        modes, before = np.empty(len(charges), np.int64), np.empty(len(charges), np.int64)
        short = units
        for row in range(len(room)):
            short -= room[row]
        while short > 0 and tried < len(go):
            short -= _release(nodes, cards, asked, room, leaving, first[tried], first[tried + 1], modes)
            go[tried] = True
            tried += 1
        if short <= 0:
            for victim in range(tried - 1, -1, -1):
                begin, end = first[victim], first[victim + 1]
                more = short + _put_back(nodes, cards, asked, room, leaving, begin, end, before)
                go[victim] = more > 0
                if more > 0:
                    more -= _take_out(nodes, cards, asked, room, leaving, begin, end, before)
                short = more
        _restore(nodes, cards, leaving, tried, go, modes)
        return bool(short <= 0)

    return fewest
