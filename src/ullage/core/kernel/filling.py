"""Progressive filling, compiled: whose turn it is, and what a granted unit changes (see `core/sharing/shares.py`).

Each queue has its children that can grow in a heap. After a unit only what its leaf goes by changes, and what
the queues above it go by, and each of these is on top of its heap. What leaves meanwhile makes a share smaller
from its next turn on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.exact import compare, cut
from ullage.core.kernel.queues import (
    AGE,
    APART,
    BY_AGE,
    CAPPED,
    CAPPED_USED,
    CAPPED_WHOLE,
    CONTRIBUTED,
    COUNTED,
    DIMENSIONS,
    FIRST,
    FULL,
    HELD,
    LEAVES,
    NEXT,
    NUMBER,
    PARENT,
    PRECEDENCE,
    PRIORITY,
    RANK,
    SATURATED,
    SHAPE,
    SHARE,
    SIZE,
    STOPPED,
    STUCK,
    TARGET,
    TIMES,
    USED,
    WEIGHT,
    WHOLE,
    charge,
    hold,
    leave,
    limit_of,
    plant,
    share_of,
    within_guarantee,
)

# How a filling goes, as bits.
GUARANTEED = 1
"""Only what lies inside guarantees is granted."""
ASKS_BEYOND = 2
"""A leaf that a limit stops is told, instead of passed over."""
SAME_SHAPE = 4
"""Where one leaf finds no room, none of its shape does."""

NOBODY = -1


@inlined
def begin(rows: Rows, heap: Rows, facts: Rows, mode: int) -> None:
    """Enter everything that wants more and was not stopped; shapes that are full stop their leaves now."""
    leaves = facts[LEAVES]
    for queue in range(leaves, len(rows)):
        rows[queue, SIZE], rows[queue, SATURATED], rows[queue, STUCK] = 0, 0, -1
    for leaf in range(leaves):
        _begin_leaf(rows, heap, facts, leaf, mode)
    for queue in range(len(rows) - 1, leaves - 1, -1):  # children stand after their parents
        for place in range(rows[queue, SIZE] // 2 - 1, -1, -1):
            _sink(rows, heap, queue, place)
        if rows[queue, PARENT] >= 0:
            _recount(rows, heap, facts, queue)
            if rows[queue, SIZE]:
                _append(rows, heap, facts, queue)
            elif rows[queue, SATURATED]:
                _stick(rows, facts, queue)


@inlined
def _begin_leaf(rows: Rows, heap: Rows, facts: Rows, leaf: int, mode: int) -> None:
    if rows[leaf, HELD] < rows[leaf, TARGET] and not rows[leaf, STOPPED]:
        full = facts[FULL + rows[leaf, SHAPE]]
        if full:
            limit = limit_of(rows, facts, leaf, True)
            rows[leaf, STOPPED] = limit or full
        elif not mode & GUARANTEED or within_guarantee(rows, leaf):
            _append(rows, heap, facts, leaf)
    if rows[leaf, STOPPED] < 0 and rows[leaf, HELD]:
        _stick(rows, facts, leaf)


@inlined
def next_leaf(rows: Rows, heap: Rows, facts: Rows, mode: int) -> tuple[int, int]:
    """The leaf whose turn it is, and with `ASKS_BEYOND` the limit that stops it, else 0; `NOBODY` at the end."""
    leaves = facts[LEAVES]
    while rows[leaves, SIZE]:
        leaf = leaves
        while leaf >= leaves:
            leaf = heap[rows[leaf, FIRST]]
        if mode & GUARANTEED and not within_guarantee(rows, leaf):
            _go_on(rows, heap, facts, leaf, SHARE)
            continue
        limit = limit_of(rows, facts, leaf, True)
        stopped = limit or facts[FULL + rows[leaf, SHAPE]]
        if not stopped or (limit and mode & ASKS_BEYOND):
            return leaf, limit
        rows[leaf, STOPPED] = stopped
        _go_on(rows, heap, facts, leaf, stopped)
    return NOBODY, 0


@inlined
def note(rows: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    """A unit was granted (`stopped` 0), or why it was not."""
    rows[leaf, STOPPED] = stopped
    if not stopped:
        hold(rows, leaf, 1)
        charge(rows, facts, leaf, 1)
        rows[leaf, TARGET] -= rows[leaf, APART]
    elif stopped < 0 and mode & SAME_SHAPE:
        facts[FULL + rows[leaf, SHAPE]] = stopped


@inlined
def settle(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    """`note` for the leaf whose turn it is: then it is the next one's."""
    note(rows, facts, leaf, stopped, mode)
    _go_on(rows, heap, facts, leaf, stopped)


@inlined
def _go_on(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int) -> None:
    """The leaf on top was served or stopped: it sinks or goes, and so do the queues above it."""
    child, queue = leaf, rows[leaf, PARENT]
    grows, stuck = not stopped and rows[leaf, HELD] < rows[leaf, TARGET], stopped < 0
    while True:
        if grows:
            _rank(rows, heap, facts, child)
        else:
            rows[queue, SIZE] -= 1
            heap[rows[queue, FIRST]] = heap[rows[queue, FIRST] + rows[queue, SIZE]]
            if stuck:
                _stick(rows, facts, child)
        _sink(rows, heap, queue, 0)
        child, queue = queue, rows[queue, PARENT]
        if queue < 0:
            break
        _recount(rows, heap, facts, child)
        grows, stuck = rows[child, SIZE] > 0, rows[child, SATURATED] > 0


# --- heaps ---


@inlined
def _append(rows: Rows, heap: Rows, facts: Rows, child: int) -> None:
    """Enter a child in its queue, whose heap is to be put in order after all of them."""
    queue = rows[child, PARENT]
    _rank(rows, heap, facts, child)
    heap[rows[queue, FIRST] + rows[queue, SIZE]] = child
    rows[queue, SIZE] += 1


@inlined
def _rank(rows: Rows, heap: Rows, facts: Rows, child: int) -> None:
    """Write what a child goes by. At a tie the queue whose next session is older goes first."""
    if child < facts[LEAVES]:
        rows[child, PRECEDENCE], rows[child, AGE] = -rows[child, PRIORITY], rows[child, NUMBER]
        if facts[BY_AGE]:
            rows[child, USED], rows[child, WHOLE] = 0, 1
            return
    else:
        rows[child, AGE] = rows[heap[rows[child, FIRST]], AGE]
    rows[child, USED], rows[child, WHOLE] = share_of(rows, facts, child)


@inlined
def _before(rows: Rows, one: int, two: int) -> bool:
    """Whether it is the turn of one child before that of another."""
    order = rows[one, PRECEDENCE] - rows[two, PRECEDENCE]
    if not order:
        order = compare(
            rows[one, USED], rows[one, WHOLE], rows[one, WEIGHT], rows[two, USED], rows[two, WHOLE], rows[two, WEIGHT]
        )
    if not order:
        order = rows[one, AGE] - rows[two, AGE]
    if not order:
        order = rows[one, RANK] - rows[two, RANK]
    return bool(order < 0) if order else one < two


@inlined
def _sink(rows: Rows, heap: Rows, queue: int, place: int) -> None:
    """Bring a child that may be too far up to its place in the heap."""
    first, size = rows[queue, FIRST], rows[queue, SIZE]
    if place < size:
        child = heap[first + place]
        below = 2 * place + 1
        while below < size:
            if below + 1 < size and _before(rows, heap[first + below + 1], heap[first + below]):
                below += 1
            if not _before(rows, heap[first + below], child):
                break
            heap[first + place] = heap[first + below]
            place, below = below, 2 * below + 1
        heap[first + place] = child


# --- what cannot grow ---


@inlined
def _stick(rows: Rows, facts: Rows, child: int) -> None:
    """A child cannot grow for want of room: enter it among those of its queue, or count one more like one of them."""
    queue = rows[child, PARENT]
    rows[queue, SATURATED] = 1
    rows[child, CAPPED_USED], rows[child, CAPPED_WHOLE] = share_of(rows, facts, child)
    for dimension in range(DIMENSIONS):
        rows[child, CAPPED + dimension] = rows[child, COUNTED + dimension]
    like, same = rows[queue, STUCK], not rows[child, CAPPED_USED]  # what counts nothing cannot count less
    while like >= 0 and not same:
        same = rows[child, WEIGHT] == rows[like, WEIGHT]
        for dimension in range(DIMENSIONS):
            same &= rows[child, CAPPED + dimension] == rows[like, CAPPED + dimension]
        if same:
            rows[like, TIMES] += 1
        like = rows[like, NEXT]
    if not same:
        rows[child, TIMES], rows[child, NEXT] = 1, rows[queue, STUCK]
        rows[queue, STUCK] = child


@inlined
def _recount(rows: Rows, heap: Rows, facts: Rows, queue: int) -> None:
    """What a queue counts in its parent: children that cannot grow at most at the level of those that can."""
    above, parent = (0, 0, 0), rows[queue, PARENT]
    if rows[queue, SIZE] and rows[queue, STUCK] >= 0:
        above = _above_the_level(rows, facts, rows[queue, STUCK], heap[rows[queue, FIRST]])
    for dimension in range(DIMENSIONS):
        counted = rows[queue, CONTRIBUTED + dimension] - above[dimension]
        rows[parent, CONTRIBUTED + dimension] += counted - rows[queue, COUNTED + dimension]
        rows[queue, COUNTED + dimension] = counted


@inlined
def _above_the_level(rows: Rows, facts: Rows, child: int, top: int) -> tuple[int, int, int]:
    """What a child that cannot grow, and those after it, count above the share of the one whose turn is next."""
    cpu = memory = gpu = 0
    used, whole = share_of(rows, facts, top)
    weight = rows[top, WEIGHT]
    while child >= 0:
        own = rows[child, CAPPED_USED], rows[child, CAPPED_WHOLE], rows[child, WEIGHT]
        if compare(used, whole, weight, *own) < 0:
            a, b, c = rows[child, CAPPED], rows[child, CAPPED + 1], rows[child, CAPPED + 2]
            cpu += rows[child, TIMES] * (a - cut(a, used, whole, weight, *own))
            memory += rows[child, TIMES] * (b - cut(b, used, whole, weight, *own))
            gpu += rows[child, TIMES] * (c - cut(c, used, whole, weight, *own))
        child = rows[child, NEXT]
    return cpu, memory, gpu


# --- from Python ---


class Filling(NamedTuple):
    """The rule as compiled entries, each with the rows, the heaps and the facts of a tree first.

    `begin(mode)` and `go_on(leaf, stopped, mode)` give the next leaf and its limit. `plant()`,
    `note(leaf, stopped, mode)`, `leave(leaf, units)` and `limit_of(leaf, leaving)` are as their namesakes, and
    `free(leaf, units)` gives back what units that count apart held.
    """

    plant: Callable[..., None]
    begin: Callable[..., tuple[int, int]]
    go_on: Callable[..., tuple[int, int]]
    note: Callable[..., None]
    leave: Callable[..., None]
    free: Callable[..., None]
    limit_of: Callable[..., int]


@compiled
def _planted(rows: Rows, _heap: Rows, facts: Rows) -> None:
    plant(rows, facts)


@compiled
def _begun(rows: Rows, heap: Rows, facts: Rows, mode: int) -> tuple[int, int]:
    begin(rows, heap, facts, mode)
    return next_leaf(rows, heap, facts, mode)


@compiled
def _gone_on(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> tuple[int, int]:
    settle(rows, heap, facts, leaf, stopped, mode)
    return next_leaf(rows, heap, facts, mode)


@compiled
def _noted(rows: Rows, _heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    note(rows, facts, leaf, stopped, mode)


@compiled
def _left(rows: Rows, _heap: Rows, facts: Rows, leaf: int, units: int) -> None:
    leave(rows, facts, leaf, units)


@compiled
def _freed(rows: Rows, _heap: Rows, facts: Rows, leaf: int, units: int) -> None:
    hold(rows, leaf, -units)
    charge(rows, facts, leaf, -units)


@compiled
def _limited(rows: Rows, _heap: Rows, facts: Rows, leaf: int, leaving: bool) -> int:
    return limit_of(rows, facts, leaf, leaving)


FILLING = Filling(_planted, _begun, _gone_on, _noted, _left, _freed, _limited)
"""The entries, compiled when they are first called."""
