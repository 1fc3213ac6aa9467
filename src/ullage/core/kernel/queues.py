"""The tree of queues as rows of integers: what each child holds, its share, and its limits.

Each child of the tree has a row: first the leaves, then the queues, the root first and each queue after its parent.
Amounts are cpu, memory and gpu, each at most `MOST`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.exact import Share, compare

DIMENSIONS = 3

MOST = 1 << 61
"""Larger amounts are reduced to this: nothing of that size is ever placed."""
UNLIMITED = 1 << 62

# Any child.
PARENT, WEIGHT, RANK = 0, 1, 2
"""The row of its queue, -1 for the root; its weight; its position among all names."""
COUNTED = 3
"""The amounts that it counts in its parent: of a leaf what it holds, of a queue see `kernel/filling.py`."""
PRECEDENCE, USED, WHOLE, AGE = 6, 7, 8, 9
"""Its order in its parent: minus its priority, its share (used and total), the number of its next leaf."""
NEXT, TIMES, CAPPED, CAPPED_USED, CAPPED_WHOLE = 10, 11, 12, 15, 16
"""While it cannot grow: the next such child (-1: none), how many equal ones it stands for, its amounts, its share."""

# A leaf. It takes units until it holds its target; `STOPPED` is what ended that (below).
UNIT, PRIORITY, NUMBER, FLOOR = 17, 20, 21, 22
EXECUTORS, APPLICATION, SHAPE = 23, 24, 25
APART = 26
"""1 if each unit is a session of its own that wants nothing more: it counts in the queue, not in the leaf."""
TARGET, HELD, LEAVING, STOPPED = 27, 28, 29, 30

# A queue. Those of its children that can grow are a heap.
FIRST, SIZE, SATURATED, STUCK = 17, 18, 19, 20
"""Where its heap begins, and its size; whether a child found no room, and the first child that cannot grow."""
LIMIT, GUARANTEE = 21, 24
USAGE, CHARGED = 27, 30
"""What is held below it; the same including what is leaving, as limits count it."""
CONTRIBUTED = 33
"""The sum of the amounts that its children count."""
COLUMNS = 36

# Facts of the tree: the number of leaves, 1 if their order is by age and not by share, the totals of the fleet, where
# applications begin. Then, per shape, why no unit of it finds room, or 0. Then two numbers for each application.
LEAVES, BY_AGE, TOTAL, APPLICATIONS, FULL = 0, 1, 2, 5, 6
LEFT, GOING = 0, 1
"""Executors that it may still have, and those that are leaving."""

# What stopped a leaf: 0 nothing, below 0 missing room, above 0 anything else, for example:
SHARE, QUEUE_LIMIT, APPLICATION_LIMIT = 1, 2, 3


class Tree(NamedTuple):
    """The rows of a tree of queues, the heaps of its queues, and the facts of the tree."""

    rows: Rows
    heap: Rows
    facts: Rows


@inlined
def share_of(tree: Tree, child: int) -> Share:
    """Return the dominant share of what a child counts: the largest of the three, divided by its weight."""
    rows, facts = tree.rows, tree.facts
    used, total = 0, 1
    for dimension in range(DIMENSIONS):
        amount, whole = rows[child, COUNTED + dimension], facts[TOTAL + dimension]
        if amount and not whole:
            return Share(1, 0, rows[child, WEIGHT])  # held although the fleet has none: larger than every other
        if amount and compare(Share(amount, whole, 1), Share(used, total, 1)) > 0:
            used, total = amount, whole
    return Share(used, total, rows[child, WEIGHT])


@inlined
def hold(rows: Rows, leaf: int, units: int) -> None:
    """Add units to what a leaf and the queues above it hold, or remove them."""
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
    """Add units to what counts against limits, or remove them."""
    facts[facts[APPLICATIONS] + 2 * rows[leaf, APPLICATION] + LEFT] -= units * rows[leaf, EXECUTORS]
    queue = rows[leaf, PARENT]
    while queue >= 0:
        for dimension in range(DIMENSIONS):
            rows[queue, CHARGED + dimension] += units * rows[leaf, UNIT + dimension]
        queue = rows[queue, PARENT]


@inlined
def leave(rows: Rows, facts: Rows, leaf: int, units: int) -> None:
    """Let units of a leaf begin to leave: they still count against limits."""
    rows[leaf, LEAVING] += units
    facts[facts[APPLICATIONS] + 2 * rows[leaf, APPLICATION] + GOING] += units * rows[leaf, EXECUTORS]
    hold(rows, leaf, -units)


@inlined
def enter_leaves(rows: Rows, facts: Rows) -> None:
    """Enter what all leaves hold, and what is leaving."""
    for leaf in range(facts[LEAVES]):
        held, leaving = rows[leaf, HELD], rows[leaf, LEAVING]
        rows[leaf, HELD] = rows[leaf, LEAVING] = 0
        hold(rows, leaf, held + leaving)
        charge(rows, facts, leaf, held + leaving)
        leave(rows, facts, leaf, leaving)


@inlined
def limit_of(rows: Rows, facts: Rows, leaf: int, leaving: bool) -> int:
    """Return the limit that one more unit would break, 0 if none; with `leaving` units that are leaving count."""
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
    """Return whether one more unit is within the guarantee of its queue or of one above, in all that it guarantees."""
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
    """Return rows, space for the heaps, and facts: zeros, with nothing limited."""
    rows = np.zeros((leaves + queues, COLUMNS), dtype=np.int64)
    rows[leaves:, LIMIT : LIMIT + DIMENSIONS] = UNLIMITED
    facts = np.zeros(FULL + shapes + 2 * applications, dtype=np.int64)
    facts[LEAVES], facts[APPLICATIONS] = leaves, FULL + shapes
    facts[FULL + shapes :: 2] = UNLIMITED
    return rows, np.zeros(leaves + queues, dtype=np.int64), facts
