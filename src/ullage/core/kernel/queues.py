"""The tree of queues as rows of numbers: who holds what, what that makes as a share, and what limits say.

Every child of the tree has a row: first the leaves, then the queues, the root before all others and each after
its parent. Amounts are cpu, memory and gpu, each at most `MOST`.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.exact import compare

DIMENSIONS = 3

MOST = 1 << 61
"""Larger amounts are cut to it: nothing of that size is ever placed."""
UNLIMITED = 1 << 62

# Any child.
PARENT, WEIGHT, RANK = 0, 1, 2
"""The row of its queue, -1 for the root; its weight; its place among all names."""
COUNTED = 3
"""What it weighs in its parent: of a leaf what it holds, of a queue see `kernel/filling.py`."""
PRECEDENCE, USED, WHOLE, AGE = 6, 7, 8, 9
"""What it goes by in its parent: less its priority, its share (without the weight), the number of its next leaf."""
NEXT, TIMES, CAPPED, CAPPED_USED, CAPPED_WHOLE = 10, 11, 12, 15, 16
"""While it cannot grow: the next such child (-1: none), how many there are like it, what it counts, and its share."""

# A leaf. It takes units until it holds as many as its target; `STOPPED` is what ended that (see below).
UNIT, PRIORITY, NUMBER, FLOOR = 17, 20, 21, 22
EXECUTORS, APPLICATION, SHAPE = 23, 24, 25
APART = 26
"""1 if every unit is a session of its own that wants nothing more: it counts in the queue, not in the leaf."""
TARGET, HELD, LEAVING, STOPPED = 27, 28, 29, 30

# A queue. Those of its children that can grow are a heap.
FIRST, SIZE, SATURATED, STUCK = 17, 18, 19, 20
"""Where its heap begins, and its size; whether a child ran out of room, and the first of those that cannot grow."""
LIMIT, GUARANTEE = 21, 24
USAGE, CHARGED = 27, 30
"""What is held below it; the same with what is leaving, as limits count it."""
CONTRIBUTED = 33
"""The sum of what its children count."""
COLUMNS = 36

# Facts of the tree: the leaves, 1 if they go by age and not by share, the fleet, where applications begin; then
# by shape why no unit of it finds room, 0 while that is not known; then two numbers for each application.
LEAVES, BY_AGE, TOTAL, APPLICATIONS, FULL = 0, 1, 2, 5, 6
LEFT, GOING = 0, 1
"""Executors it may still have, and those that are leaving."""

# What stopped a leaf: 0 nothing, below 0 that room ran out, above 0 anything else, among that:
SHARE, QUEUE_LIMIT, APPLICATION_LIMIT = 1, 2, 3


@inlined
def dominant(facts: Rows, cpu: int, memory: int, gpu: int) -> tuple[int, int]:
    """The part of the fleet that is the largest, as used and total."""
    used, whole = 0, 1
    for amount, total in ((cpu, facts[TOTAL]), (memory, facts[TOTAL + 1]), (gpu, facts[TOTAL + 2])):
        if amount and not total:
            return 1, 0  # held although the fleet has none: beyond every other
        if amount and compare(amount, total, 1, used, whole, 1) > 0:
            used, whole = amount, total
    return used, whole


@inlined
def share_of(rows: Rows, facts: Rows, child: int) -> tuple[int, int]:
    """The dominant share of what a child counts, still to be divided by its weight."""
    return dominant(facts, rows[child, COUNTED], rows[child, COUNTED + 1], rows[child, COUNTED + 2])


@inlined
def hold(rows: Rows, leaf: int, units: int) -> None:
    """A leaf holds so many units more, or less."""
    if not rows[leaf, APART]:
        rows[leaf, HELD] += units
        for dimension in range(DIMENSIONS):
            rows[leaf, COUNTED + dimension] += units * rows[leaf, UNIT + dimension]
    queue = rows[leaf, PARENT]
    for dimension in range(DIMENSIONS):
        rows[queue, CONTRIBUTED + dimension] += units * rows[leaf, UNIT + dimension]
    while queue >= 0:
        for dimension in range(DIMENSIONS):
            rows[queue, USAGE + dimension] += units * rows[leaf, UNIT + dimension]
        queue = rows[queue, PARENT]


@inlined
def charge(rows: Rows, facts: Rows, leaf: int, units: int) -> None:
    """So many units more, or less, count against limits."""
    facts[facts[APPLICATIONS] + 2 * rows[leaf, APPLICATION] + LEFT] -= units * rows[leaf, EXECUTORS]
    queue = rows[leaf, PARENT]
    while queue >= 0:
        for dimension in range(DIMENSIONS):
            rows[queue, CHARGED + dimension] += units * rows[leaf, UNIT + dimension]
        queue = rows[queue, PARENT]


@inlined
def leave(rows: Rows, facts: Rows, leaf: int, units: int) -> None:
    """Units of a leaf begin to leave: they still count against limits."""
    rows[leaf, LEAVING] += units
    facts[facts[APPLICATIONS] + 2 * rows[leaf, APPLICATION] + GOING] += units * rows[leaf, EXECUTORS]
    hold(rows, leaf, -units)


@inlined
def plant(rows: Rows, facts: Rows) -> None:
    """Enter what leaves hold and what is leaving."""
    for leaf in range(facts[LEAVES]):
        held, leaving = rows[leaf, HELD], rows[leaf, LEAVING]
        rows[leaf, HELD] = rows[leaf, LEAVING] = 0
        hold(rows, leaf, held + leaving)
        charge(rows, facts, leaf, held + leaving)
        leave(rows, facts, leaf, leaving)


@inlined
def limit_of(rows: Rows, facts: Rows, leaf: int, leaving: bool) -> int:
    """The limit that one more unit would break, 0 if none; with `leaving` what is not gone yet counts."""
    application = facts[APPLICATIONS] + 2 * rows[leaf, APPLICATION]
    left = facts[application + LEFT]
    if not leaving:
        left += facts[application + GOING]
    broken = APPLICATION_LIMIT if left < rows[leaf, EXECUTORS] else 0
    queue, counted = rows[leaf, PARENT], CHARGED if leaving else USAGE
    while queue >= 0 and not broken:
        for dimension in range(DIMENSIONS):
            after = rows[queue, counted + dimension] + rows[leaf, UNIT + dimension]
            if after > rows[queue, LIMIT + dimension]:
                broken = QUEUE_LIMIT
        queue = rows[queue, PARENT]
    return broken


@inlined
def within_guarantee(rows: Rows, leaf: int) -> bool:
    """Whether one more unit lies inside the guarantee of its queue or of one above, in all that it names."""
    queue, found = rows[leaf, PARENT], False
    while queue >= 0 and not found:
        asked, inside = False, True
        for dimension in range(DIMENSIONS):
            guarantee, amount = rows[queue, GUARANTEE + dimension], rows[leaf, UNIT + dimension]
            if guarantee:
                asked |= amount > 0
                inside &= rows[queue, USAGE + dimension] + amount <= guarantee
        found = asked and inside
        queue = rows[queue, PARENT]
    return found


def empty_tree(leaves: int, queues: int, applications: int, shapes: int) -> tuple[Rows, Rows, Rows]:
    """Rows, room for the heaps, and facts: zeros, but that nothing is limited."""
    rows = np.zeros((leaves + queues, COLUMNS), dtype=np.int64)
    rows[leaves:, LIMIT : LIMIT + DIMENSIONS] = UNLIMITED
    facts = np.zeros(FULL + shapes + 2 * applications, dtype=np.int64)
    facts[LEAVES], facts[APPLICATIONS] = leaves, FULL + shapes
    facts[FULL + shapes :: 2] = UNLIMITED
    return rows, np.zeros(leaves + queues, dtype=np.int64), facts
