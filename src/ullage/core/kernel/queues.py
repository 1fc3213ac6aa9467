"""The tree of queues as columns: who holds what, what that makes as a share, and what limits say.

A leaf takes units; queues are the inner nodes, the root first and each after its parent. Amounts are cpu,
memory and gpu, each below 2^61 (`MOST`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.exact import compare

DIMENSIONS = 3

MOST = 1 << 61
"""Larger amounts are cut to it: nothing of that size is ever placed."""
UNLIMITED = 1 << 62

# A leaf. It takes units until it holds as many as its target; `STOPPED` is what ended that (see below).
QUEUE, UNIT, PRIORITY, WEIGHT, NUMBER, RANK, FLOOR = 0, 1, 4, 5, 6, 7, 8
EXECUTORS, APPLICATION, SHAPE = 9, 10, 11
APART = 12
"""1 if every unit is a session of its own that wants nothing more: it counts in the queue, not in the leaf."""
TARGET, HELD, LEAVING, STOPPED = 13, 14, 15, 16
LEAF_COLUMNS = 17

# A queue. Its children that can grow are a heap, in `heap` from FIRST on.
PARENT, FIRST, SIZE = 0, 2, 3
GROUP_RANK, GROUP_WEIGHT = 1, 4
CAPPED, SATURATED = 5, 6
"""The first of the children that cannot grow for want of room, -1 if none; whether there was one at all."""
LIMIT, GUARANTEE = 7, 10
USAGE, CHARGED = 13, 16
"""What is held below it; the same with what is leaving, as limits count it."""
CONTRIBUTED, COUNTED = 19, 22
"""The sum of what its children count; what it counts itself in its parent (see `kernel/filling.py`)."""
GROUP_COLUMNS = 25

# An application: executors it may still have, and those that are leaving.
LEFT, GOING = 0, 1
APPLICATION_COLUMNS = 2

# What a child goes by in the heap of its queue: the smallest of these, one after the other, and then itself.
FIRST_BY = 0
"""Less its priority, if it is a leaf."""
USED, WHOLE, DIVISOR = 1, 2, 3
"""Its share, as `kernel/exact.py` has it."""
AGE, NAME = 4, 5
"""The number of the leaf, or of the next leaf in the queue; its place among all names."""
KEY_COLUMNS = 6

# A child that cannot grow for want of room.
NEXT, TIMES = 0, 1
"""The next such child of the queue, -1 at the end; how many others there are like it."""
AMOUNT, CAPPED_USED, CAPPED_WHOLE, CAPPED_DIVISOR = 2, 5, 6, 7
"""What it counts, and its share."""
CAPPED_COLUMNS = 8

# What stopped a leaf: 0 nothing, below 0 that room ran out, above 0 anything else, among that:
SHARE, QUEUE_LIMIT, APPLICATION_LIMIT = 1, 2, 3


class Queues(NamedTuple):
    """All columns. Children are leaves by their number, then queues."""

    leaves: Rows
    groups: Rows
    applications: Rows
    total: Rows
    """Of the fleet, in three dimensions; then 1 if leaves go by age and not by share."""
    full: Rows
    """By shape, why no unit of it finds room; 0 while that is not known."""
    keys: Rows
    heap: Rows
    capped: Rows


@inlined
def dominant(amounts: Rows, total: Rows) -> tuple[int, int]:
    """The part of the fleet that is the largest, as used and total; a dimension without anything counts 0."""
    used, whole = 0, 1
    for dimension in range(DIMENSIONS):
        amount = amounts[dimension]
        if amount and (not total[dimension] or compare(amount, total[dimension], 1, used, whole, 1) > 0):
            used, whole = amount, total[dimension]
            if not whole:
                return 1, 0  # held although the fleet has none: beyond every other
    return used, whole


@inlined
def hold(queues: Queues, leaf: int, units: int) -> None:
    """A leaf holds so many units more, or less."""
    unit = queues.leaves[leaf, UNIT : UNIT + DIMENSIONS]
    group = queues.leaves[leaf, QUEUE]
    _add(queues.groups[group, CONTRIBUTED:], unit, units)
    while group >= 0:
        _add(queues.groups[group, USAGE:], unit, units)
        group = queues.groups[group, PARENT]


@inlined
def charge(queues: Queues, leaf: int, units: int) -> None:
    """So many units more, or less, count against limits."""
    row = queues.leaves[leaf]
    queues.applications[row[APPLICATION], LEFT] -= units * row[EXECUTORS]
    group = row[QUEUE]
    while group >= 0:
        _add(queues.groups[group, CHARGED:], row[UNIT:], units)
        group = queues.groups[group, PARENT]


@inlined
def leave(queues: Queues, leaf: int, units: int) -> None:
    """Units of a leaf begin to leave: they still count against limits."""
    row = queues.leaves[leaf]
    row[HELD] -= units
    row[LEAVING] += units
    queues.applications[row[APPLICATION], GOING] += units * row[EXECUTORS]
    hold(queues, leaf, -units)


@inlined
def plant(queues: Queues) -> None:
    """Enter what leaves hold and what is leaving."""
    for leaf in range(len(queues.leaves)):
        row = queues.leaves[leaf]
        queues.applications[row[APPLICATION], GOING] += row[LEAVING] * row[EXECUTORS]
        hold(queues, leaf, row[HELD])
        charge(queues, leaf, row[HELD] + row[LEAVING])


@inlined
def limit_of(queues: Queues, leaf: int, leaving: bool) -> int:
    """The limit that one more unit would break, 0 if none; with `leaving` what is not gone yet counts."""
    row = queues.leaves[leaf]
    application = queues.applications[row[APPLICATION]]
    left = application[LEFT] + (0 if leaving else application[GOING])
    if left < row[EXECUTORS]:
        return APPLICATION_LIMIT
    group, counted = row[QUEUE], CHARGED if leaving else USAGE
    while group >= 0:
        queue = queues.groups[group]
        for dimension in range(DIMENSIONS):
            if queue[counted + dimension] + row[UNIT + dimension] > queue[LIMIT + dimension]:
                return QUEUE_LIMIT
        group = queue[PARENT]
    return 0


@inlined
def within_guarantee(queues: Queues, leaf: int) -> bool:
    """Whether one more unit lies inside the guarantee of its queue or of one above, in all that it names."""
    row = queues.leaves[leaf]
    group = row[QUEUE]
    while group >= 0:
        queue = queues.groups[group]
        asked, inside = False, True
        for dimension in range(DIMENSIONS):
            if queue[GUARANTEE + dimension]:
                asked |= row[UNIT + dimension] > 0
                inside &= queue[USAGE + dimension] + row[UNIT + dimension] <= queue[GUARANTEE + dimension]
        if asked and inside:
            return True
        group = queue[PARENT]
    return False


@inlined
def _add(to: Rows, amounts: Rows, times: int) -> None:
    for dimension in range(DIMENSIONS):
        to[dimension] += times * amounts[dimension]


def columns(leaves: int, groups: int, applications: int, shapes: int) -> Queues:
    """Columns of zeros; every leaf, queue, application and shape is to be entered."""

    def zeros(*shape: int) -> Rows:
        return np.zeros(shape, dtype=np.int64)

    children = leaves + groups
    return Queues(
        zeros(leaves, LEAF_COLUMNS),
        zeros(groups, GROUP_COLUMNS),
        zeros(applications, APPLICATION_COLUMNS),
        zeros(DIMENSIONS + 1),
        zeros(shapes),
        zeros(children, KEY_COLUMNS),
        zeros(children),
        zeros(children, CAPPED_COLUMNS),
    )
