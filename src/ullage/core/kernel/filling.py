"""Progressive filling, compiled: whose turn it is, and what a granted unit changes (see `core/sharing/shares.py`).

Each queue has its children that can grow in a heap. After a unit only what its leaf goes by changes, and what
the queues above it go by, and each of these is on top of its heap. What leaves meanwhile makes a share smaller
from its next turn on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ullage.core.kernel import queues as q
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.exact import compare, cut
from ullage.core.kernel.queues import charge, hold, leave, limit_of, plant, share_of, within_guarantee

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
    leaves = facts[q.LEAVES]
    for queue in range(leaves, len(rows)):
        rows[queue, q.SIZE], rows[queue, q.SATURATED], rows[queue, q.STUCK] = 0, 0, -1
    for leaf in range(leaves):
        _begin_leaf(rows, heap, facts, leaf, mode)
    for queue in range(len(rows) - 1, leaves - 1, -1):  # children stand after their parents
        for place in range(rows[queue, q.SIZE] // 2 - 1, -1, -1):
            _sink(rows, heap, queue, place)
        if rows[queue, q.PARENT] >= 0:
            _recount(rows, heap, facts, queue)
            if rows[queue, q.SIZE]:
                _append(rows, heap, facts, queue)
            elif rows[queue, q.SATURATED]:
                _stick(rows, facts, queue)


@inlined
def _begin_leaf(rows: Rows, heap: Rows, facts: Rows, leaf: int, mode: int) -> None:
    if rows[leaf, q.HELD] < rows[leaf, q.TARGET] and not rows[leaf, q.STOPPED]:
        full = facts[q.FULL + rows[leaf, q.SHAPE]]
        if full:
            limit = limit_of(rows, facts, leaf, True)
            rows[leaf, q.STOPPED] = limit or full
        elif not mode & GUARANTEED or within_guarantee(rows, leaf):
            _append(rows, heap, facts, leaf)
    if rows[leaf, q.STOPPED] < 0 and rows[leaf, q.HELD]:
        _stick(rows, facts, leaf)


@inlined
def next_leaf(rows: Rows, heap: Rows, facts: Rows, mode: int) -> tuple[int, int]:
    """The leaf whose turn it is, and with `ASKS_BEYOND` the limit that stops it, else 0; `NOBODY` at the end."""
    leaves = facts[q.LEAVES]
    while rows[leaves, q.SIZE]:
        leaf = leaves
        while leaf >= leaves:
            leaf = heap[rows[leaf, q.FIRST]]
        if mode & GUARANTEED and not within_guarantee(rows, leaf):
            _go_on(rows, heap, facts, leaf, q.SHARE)
            continue
        limit = limit_of(rows, facts, leaf, True)
        stopped = limit or facts[q.FULL + rows[leaf, q.SHAPE]]
        if not stopped or (limit and mode & ASKS_BEYOND):
            return leaf, limit
        rows[leaf, q.STOPPED] = stopped
        _go_on(rows, heap, facts, leaf, stopped)
    return NOBODY, 0


@inlined
def note(rows: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    """A unit was granted (`stopped` 0), or why it was not."""
    rows[leaf, q.STOPPED] = stopped
    if not stopped:
        hold(rows, leaf, 1)
        charge(rows, facts, leaf, 1)
        rows[leaf, q.TARGET] -= rows[leaf, q.APART]
    elif stopped < 0 and mode & SAME_SHAPE:
        facts[q.FULL + rows[leaf, q.SHAPE]] = stopped


@inlined
def settle(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    """`note` for the leaf whose turn it is: then it is the next one's."""
    note(rows, facts, leaf, stopped, mode)
    _go_on(rows, heap, facts, leaf, stopped)


@inlined
def _go_on(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int) -> None:
    """The leaf on top was served or stopped: it sinks or goes, and so do the queues above it."""
    child, queue = leaf, rows[leaf, q.PARENT]
    grows, stuck = not stopped and rows[leaf, q.HELD] < rows[leaf, q.TARGET], stopped < 0
    while True:
        if grows:
            _rank(rows, heap, facts, child)
        else:
            rows[queue, q.SIZE] -= 1
            heap[rows[queue, q.FIRST]] = heap[rows[queue, q.FIRST] + rows[queue, q.SIZE]]
            if stuck:
                _stick(rows, facts, child)
        _sink(rows, heap, queue, 0)
        child, queue = queue, rows[queue, q.PARENT]
        if queue < 0:
            break
        _recount(rows, heap, facts, child)
        grows, stuck = rows[child, q.SIZE] > 0, rows[child, q.SATURATED] > 0


# --- heaps ---


@inlined
def _append(rows: Rows, heap: Rows, facts: Rows, child: int) -> None:
    """Enter a child in its queue, whose heap is to be put in order after all of them."""
    queue = rows[child, q.PARENT]
    _rank(rows, heap, facts, child)
    heap[rows[queue, q.FIRST] + rows[queue, q.SIZE]] = child
    rows[queue, q.SIZE] += 1


@inlined
def _rank(rows: Rows, heap: Rows, facts: Rows, child: int) -> None:
    """Write what a child goes by. At a tie the queue whose next session is older goes first."""
    if child < facts[q.LEAVES]:
        rows[child, q.PRECEDENCE], rows[child, q.AGE] = -rows[child, q.PRIORITY], rows[child, q.NUMBER]
        if facts[q.BY_AGE]:
            rows[child, q.USED], rows[child, q.WHOLE] = 0, 1
            return
    else:
        rows[child, q.AGE] = rows[heap[rows[child, q.FIRST]], q.AGE]
    rows[child, q.USED], rows[child, q.WHOLE] = share_of(rows, facts, child)


@inlined
def _before(rows: Rows, one: int, two: int) -> bool:
    """Whether it is the turn of one child before that of another."""
    order = rows[one, q.PRECEDENCE] - rows[two, q.PRECEDENCE]
    if not order:
        order = compare(
            rows[one, q.USED],
            rows[one, q.WHOLE],
            rows[one, q.WEIGHT],
            rows[two, q.USED],
            rows[two, q.WHOLE],
            rows[two, q.WEIGHT],
        )
    if not order:
        order = rows[one, q.AGE] - rows[two, q.AGE]
    if not order:
        order = rows[one, q.RANK] - rows[two, q.RANK]
    return bool(order < 0) if order else one < two


@inlined
def _sink(rows: Rows, heap: Rows, queue: int, place: int) -> None:
    """Bring a child that may be too far up to its place in the heap."""
    first, size = rows[queue, q.FIRST], rows[queue, q.SIZE]
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
    queue = rows[child, q.PARENT]
    rows[queue, q.SATURATED] = 1
    rows[child, q.CAPPED_USED], rows[child, q.CAPPED_WHOLE] = share_of(rows, facts, child)
    for dimension in range(q.DIMENSIONS):
        rows[child, q.CAPPED + dimension] = rows[child, q.COUNTED + dimension]
    like, same = rows[queue, q.STUCK], not rows[child, q.CAPPED_USED]  # what counts nothing cannot count less
    while like >= 0 and not same:
        same = rows[child, q.WEIGHT] == rows[like, q.WEIGHT]
        for dimension in range(q.DIMENSIONS):
            same &= rows[child, q.CAPPED + dimension] == rows[like, q.CAPPED + dimension]
        if same:
            rows[like, q.TIMES] += 1
        like = rows[like, q.NEXT]
    if not same:
        rows[child, q.TIMES], rows[child, q.NEXT] = 1, rows[queue, q.STUCK]
        rows[queue, q.STUCK] = child


@inlined
def _recount(rows: Rows, heap: Rows, facts: Rows, queue: int) -> None:
    """What a queue counts in its parent: children that cannot grow at most at the level of those that can."""
    above, parent = (0, 0, 0), rows[queue, q.PARENT]
    if rows[queue, q.SIZE] and rows[queue, q.STUCK] >= 0:
        above = _above_the_level(rows, facts, rows[queue, q.STUCK], heap[rows[queue, q.FIRST]])
    for dimension in range(q.DIMENSIONS):
        counted = rows[queue, q.CONTRIBUTED + dimension] - above[dimension]
        rows[parent, q.CONTRIBUTED + dimension] += counted - rows[queue, q.COUNTED + dimension]
        rows[queue, q.COUNTED + dimension] = counted


@inlined
def _above_the_level(rows: Rows, facts: Rows, child: int, top: int) -> tuple[int, int, int]:
    """What a child that cannot grow, and those after it, count above the share of the one whose turn is next."""
    cpu = memory = gpu = 0
    used, whole = share_of(rows, facts, top)
    weight = rows[top, q.WEIGHT]
    while child >= 0:
        own = rows[child, q.CAPPED_USED], rows[child, q.CAPPED_WHOLE], rows[child, q.WEIGHT]
        if compare(used, whole, weight, *own) < 0:
            a, b, c = rows[child, q.CAPPED], rows[child, q.CAPPED + 1], rows[child, q.CAPPED + 2]
            cpu += rows[child, q.TIMES] * (a - cut(a, used, whole, weight, *own))
            memory += rows[child, q.TIMES] * (b - cut(b, used, whole, weight, *own))
            gpu += rows[child, q.TIMES] * (c - cut(c, used, whole, weight, *own))
        child = rows[child, q.NEXT]
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
