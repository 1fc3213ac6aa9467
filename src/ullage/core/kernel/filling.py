"""Progressive filling, compiled: whose turn it is, and what a granted unit changes (see `core/shares.py`).

Each queue has its children that can grow in a heap. After a unit only the keys from its leaf up to the root
change, and each of those is on top of its heap. Keys are what they were when they were entered: what leaves
meanwhile makes a share smaller from its next turn on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import code_of, compiled, inlined
from ullage.core.kernel.exact import compare, cut
from ullage.core.kernel.queues import (
    AGE,
    AMOUNT,
    APART,
    CAPPED,
    CAPPED_DIVISOR,
    CAPPED_USED,
    CAPPED_WHOLE,
    CONTRIBUTED,
    COUNTED,
    DIMENSIONS,
    DIVISOR,
    FIRST,
    FIRST_BY,
    GROUP_RANK,
    GROUP_WEIGHT,
    HELD,
    NAME,
    NEXT,
    NUMBER,
    PARENT,
    PRIORITY,
    QUEUE,
    RANK,
    SATURATED,
    SHAPE,
    SHARE,
    SIZE,
    STOPPED,
    TARGET,
    TIMES,
    UNIT,
    USED,
    WEIGHT,
    WHOLE,
    Queues,
    charge,
    dominant,
    hold,
    leave,
    limit_of,
    plant,
    within_guarantee,
)

# How a filling goes, as bits.
GUARANTEED = 1
"""Only what lies inside guarantees is granted."""
ASKS_BEYOND = 2
"""A leaf that a limit stops is told, instead of passed over."""
ALIKE = 4
"""Where one leaf finds no room, none of its shape does."""

NOBODY = -1


@inlined
def begin(queues: Queues, mode: int) -> None:
    """Enter everything that wants more and was not stopped; shapes that are full stop their leaves now."""
    leaves, groups = queues.leaves, queues.groups
    for group in range(len(groups)):
        groups[group, SIZE], groups[group, CAPPED], groups[group, SATURATED] = 0, -1, 0
    for leaf in range(len(leaves)):
        row = leaves[leaf]
        if row[HELD] < row[TARGET] and not row[STOPPED]:
            if queues.full[row[SHAPE]]:
                limit = limit_of(queues, leaf, True)
                row[STOPPED] = limit if limit else queues.full[row[SHAPE]]
            elif not mode & GUARANTEED or within_guarantee(queues, leaf):
                group = row[QUEUE]
                _key_leaf(queues, leaf)
                queues.heap[groups[group, FIRST] + groups[group, SIZE]] = leaf
                groups[group, SIZE] += 1
        if row[STOPPED] < 0 and row[HELD]:
            _cap_leaf(queues, leaf)
    for group in range(len(groups) - 1, -1, -1):  # children stand after their parents
        for place in range(groups[group, SIZE] // 2 - 1, -1, -1):
            _sink(queues, group, place)
        parent = groups[group, PARENT]
        if parent < 0:
            continue
        _recount(queues, group)
        if groups[group, SIZE]:
            _key_group(queues, group)
            queues.heap[groups[parent, FIRST] + groups[parent, SIZE]] = len(leaves) + group
            groups[parent, SIZE] += 1
        elif groups[group, SATURATED]:
            _cap_group(queues, group)


@inlined
def next_leaf(queues: Queues, mode: int) -> tuple[int, int]:
    """The leaf whose turn it is, and with `ASKS_BEYOND` the limit that stops it, else 0; `NOBODY` at the end."""
    leaves, groups, heap = queues.leaves, queues.groups, queues.heap
    while groups[0, SIZE]:
        leaf = heap[groups[0, FIRST]]
        while leaf >= len(leaves):
            leaf = heap[groups[leaf - len(leaves), FIRST]]
        if mode & GUARANTEED and not within_guarantee(queues, leaf):
            _go_on(queues, leaf, SHARE)
            continue
        stopped = limit_of(queues, leaf, True)
        if stopped and mode & ASKS_BEYOND:
            return leaf, stopped
        if not stopped:
            stopped = queues.full[leaves[leaf, SHAPE]]
        if not stopped:
            return leaf, 0
        leaves[leaf, STOPPED] = stopped
        _go_on(queues, leaf, stopped)
    return NOBODY, 0


@inlined
def note(queues: Queues, leaf: int, stopped: int, mode: int) -> None:
    """A unit was granted (`stopped` 0), or why it was not."""
    row = queues.leaves[leaf]
    row[STOPPED] = stopped
    if not stopped:
        if row[APART]:
            row[TARGET] -= 1
        else:
            row[HELD] += 1
        hold(queues, leaf, 1)
        charge(queues, leaf, 1)
    elif stopped < 0 and mode & ALIKE:
        queues.full[row[SHAPE]] = stopped


@inlined
def settle(queues: Queues, leaf: int, stopped: int, mode: int) -> None:
    """`note` for the leaf whose turn it is: then it is the next one's."""
    note(queues, leaf, stopped, mode)
    _go_on(queues, leaf, stopped)


@inlined
def _go_on(queues: Queues, leaf: int, stopped: int) -> None:
    """The leaf on top was served or stopped: it sinks or goes, and so do the queues above it."""
    leaves, groups = queues.leaves, queues.groups
    group = leaves[leaf, QUEUE]
    if not stopped and leaves[leaf, HELD] < leaves[leaf, TARGET]:
        _key_leaf(queues, leaf)
    else:
        _drop(queues, group)
        if stopped < 0:
            _cap_leaf(queues, leaf)
    _sink(queues, group, 0)
    parent = groups[group, PARENT]
    while parent >= 0:
        _recount(queues, group)
        if groups[group, SIZE]:
            _key_group(queues, group)
        else:
            _drop(queues, parent)
            if groups[group, SATURATED]:
                _cap_group(queues, group)
        _sink(queues, parent, 0)
        group, parent = parent, groups[parent, PARENT]


# --- heaps ---


@inlined
def _key_leaf(queues: Queues, leaf: int) -> None:
    row, key = queues.leaves[leaf], queues.keys[leaf]
    key[FIRST_BY], key[AGE], key[NAME] = -row[PRIORITY], row[NUMBER], row[RANK]
    if queues.total[DIMENSIONS]:
        key[USED], key[WHOLE], key[DIVISOR] = 0, 1, 1
    else:
        key[USED], key[WHOLE], key[DIVISOR] = _share_of_leaf(queues, leaf)


@inlined
def _key_group(queues: Queues, group: int) -> None:
    """At a tie the queue whose next session is older goes first."""
    row, key = queues.groups[group], queues.keys[len(queues.leaves) + group]
    oldest = queues.keys[queues.heap[row[FIRST]], AGE]
    key[FIRST_BY], key[AGE], key[NAME] = 0, oldest, row[GROUP_RANK]
    key[USED], key[WHOLE], key[DIVISOR] = _share_of_group(queues, group)


@inlined
def _share_of_leaf(queues: Queues, leaf: int) -> tuple[int, int, int]:
    row = queues.leaves[leaf]
    used, whole = dominant(row[UNIT:], queues.total)  # which dimension it is does not depend on how many
    return used * row[HELD], whole if row[HELD] else 1, row[WEIGHT]


@inlined
def _share_of_group(queues: Queues, group: int) -> tuple[int, int, int]:
    used, whole = dominant(queues.groups[group, COUNTED:], queues.total)
    return used, whole, queues.groups[group, GROUP_WEIGHT]


@inlined
def _before(queues: Queues, child: int, other: int) -> bool:
    """Whether it is the child's turn before the other's."""
    one, two = queues.keys[child], queues.keys[other]
    if one[FIRST_BY] != two[FIRST_BY]:
        return bool(one[FIRST_BY] < two[FIRST_BY])
    order = compare(one[USED], one[WHOLE], one[DIVISOR], two[USED], two[WHOLE], two[DIVISOR])
    if order:
        return order < 0
    if one[AGE] != two[AGE]:
        return bool(one[AGE] < two[AGE])
    return bool(one[NAME] < two[NAME]) if one[NAME] != two[NAME] else child < other


@inlined
def _sink(queues: Queues, group: int, place: int) -> None:
    """Bring a child that may be too far up to its place in the heap."""
    first, size = queues.groups[group, FIRST], queues.groups[group, SIZE]
    if place >= size:
        return
    child = queues.heap[first + place]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(queues, queues.heap[first + below + 1], queues.heap[first + below]):
            below += 1
        if not _before(queues, queues.heap[first + below], child):
            break
        queues.heap[first + place] = queues.heap[first + below]
        place = below
    queues.heap[first + place] = child


@inlined
def _drop(queues: Queues, group: int) -> None:
    """Take the child on top out of a heap; what replaces it is still to sink."""
    row = queues.groups[group]
    row[SIZE] -= 1
    queues.heap[row[FIRST]] = queues.heap[row[FIRST] + row[SIZE]]


# --- what cannot grow ---


@inlined
def _cap_leaf(queues: Queues, leaf: int) -> None:
    row = queues.leaves[leaf]
    queues.groups[row[QUEUE], SATURATED] = 1
    if row[HELD]:
        entry = queues.capped[leaf]
        for dimension in range(DIMENSIONS):
            entry[AMOUNT + dimension] = row[UNIT + dimension] * row[HELD]
        entry[CAPPED_USED], entry[CAPPED_WHOLE], entry[CAPPED_DIVISOR] = _share_of_leaf(queues, leaf)
        _cap(queues, row[QUEUE], leaf)


@inlined
def _cap_group(queues: Queues, group: int) -> None:
    row, child = queues.groups[group], len(queues.leaves) + group
    queues.groups[row[PARENT], SATURATED] = 1
    entry = queues.capped[child]
    entry[AMOUNT : AMOUNT + DIMENSIONS] = row[COUNTED : COUNTED + DIMENSIONS]
    entry[CAPPED_USED], entry[CAPPED_WHOLE], entry[CAPPED_DIVISOR] = _share_of_group(queues, group)
    _cap(queues, row[PARENT], child)


@inlined
def _cap(queues: Queues, group: int, child: int) -> None:
    """Enter a child that cannot grow, or count one more like it."""
    entry, like = queues.capped[child], queues.groups[group, CAPPED]
    while like >= 0:
        other = queues.capped[like]
        same = entry[CAPPED_DIVISOR] == other[CAPPED_DIVISOR]
        for dimension in range(DIMENSIONS):
            same &= entry[AMOUNT + dimension] == other[AMOUNT + dimension]
        if same:
            other[TIMES] += 1
            return
        like = other[NEXT]
    entry[TIMES], entry[NEXT] = 1, queues.groups[group, CAPPED]
    queues.groups[group, CAPPED] = child


@inlined
def _recount(queues: Queues, group: int) -> None:
    """What a queue counts in its parent: children that cannot grow at most at the level of those that can."""
    row = queues.groups[group]
    a, b, c = row[CONTRIBUTED], row[CONTRIBUTED + 1], row[CONTRIBUTED + 2]
    if row[SIZE] and row[CAPPED] >= 0:
        top = queues.heap[row[FIRST]]
        if top < len(queues.leaves):
            used, whole, divisor = _share_of_leaf(queues, top)
        else:
            used, whole, divisor = _share_of_group(queues, top - len(queues.leaves))
        child = row[CAPPED]
        while child >= 0:
            entry = queues.capped[child]
            own = entry[CAPPED_USED], entry[CAPPED_WHOLE], entry[CAPPED_DIVISOR]
            if compare(used, whole, divisor, *own) < 0:
                a -= entry[TIMES] * (entry[AMOUNT] - cut(entry[AMOUNT], used, whole, divisor, *own))
                b -= entry[TIMES] * (entry[AMOUNT + 1] - cut(entry[AMOUNT + 1], used, whole, divisor, *own))
                c -= entry[TIMES] * (entry[AMOUNT + 2] - cut(entry[AMOUNT + 2], used, whole, divisor, *own))
            child = entry[NEXT]
    above = queues.groups[row[PARENT]]
    above[CONTRIBUTED] += a - row[COUNTED]
    above[CONTRIBUTED + 1] += b - row[COUNTED + 1]
    above[CONTRIBUTED + 2] += c - row[COUNTED + 2]
    row[COUNTED], row[COUNTED + 1], row[COUNTED + 2] = a, b, c


# --- from Python ---


class Filling(NamedTuple):
    """The rule as compiled entries. The columns of `Queues` come last, one by one.

    `plant()` enters what is held. `begin(mode)` and `go_on(leaf, stopped, mode)` give the next leaf and its
    limit. `note(leaf, stopped, mode)`, `leave(leaf, units)` and `limit_of(leaf, leaving)` are as above, and
    `free(leaf, units)` gives back what units that count apart held.
    """

    plant: Callable[..., None]
    begin: Callable[..., tuple[int, int]]
    go_on: Callable[..., tuple[int, int]]
    note: Callable[..., None]
    leave: Callable[..., None]
    free: Callable[..., None]
    limit_of: Callable[..., int]


@cache
def filling() -> Filling:
    """Compile the entries."""
    key = code_of(begin, next_leaf, settle, leave, plant)

    @compiled
    def plant_in(*columns: Rows) -> None:
        key  # noqa: B018  part of the cache key, see `code_of`
        plant(Queues(*columns))

    @compiled
    def begin_in(mode: int, *columns: Rows) -> tuple[int, int]:
        key  # noqa: B018  as above
        queues = Queues(*columns)
        begin(queues, mode)
        return next_leaf(queues, mode)

    @compiled
    def go_on_in(leaf: int, stopped: int, mode: int, *columns: Rows) -> tuple[int, int]:
        key  # noqa: B018  as above
        queues = Queues(*columns)
        settle(queues, leaf, stopped, mode)
        return next_leaf(queues, mode)

    @compiled
    def note_in(leaf: int, stopped: int, mode: int, *columns: Rows) -> None:
        key  # noqa: B018  as above
        note(Queues(*columns), leaf, stopped, mode)

    @compiled
    def leave_in(leaf: int, units: int, *columns: Rows) -> None:
        key  # noqa: B018  as above
        leave(Queues(*columns), leaf, units)

    @compiled
    def free_in(leaf: int, units: int, *columns: Rows) -> None:
        key  # noqa: B018  as above
        queues = Queues(*columns)
        hold(queues, leaf, -units)
        charge(queues, leaf, -units)

    @compiled
    def limit_in(leaf: int, leaving: bool, *columns: Rows) -> int:  # noqa: FBT001 - an argument of compiled code
        key  # noqa: B018  as above
        return limit_of(Queues(*columns), leaf, leaving)

    return Filling(plant_in, begin_in, go_on_in, note_in, leave_in, free_in, limit_in)
