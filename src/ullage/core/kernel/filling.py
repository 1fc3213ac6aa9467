"""Progressive filling, compiled: which leaf is next, and what a granted unit changes (see `core/sharing/shares.py`).

The children of each queue that can grow form a heap. A unit changes the order of its leaf and of the queues above it
only, and each of these is at the top of its heap. A leaf whose units leave meanwhile moves up at its next turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ullage.core.kernel import queues as q
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.exact import Share, compare, cut
from ullage.core.kernel.queues import Tree, charge, enter_leaves, hold, leave, limit_of, share_of, within_guarantee

# The mode of a filling, as bits.
GUARANTEED = 1
"""Grant only what is within guarantees."""
ASKS_BEYOND = 2
"""Return a leaf that a limit stops, instead of passing over it."""
SAME_SHAPE = 4
"""Where one leaf finds no room, no leaf of its shape does."""

NOBODY = -1


@inlined
def begin(tree: Tree, mode: int) -> None:
    """Enter every leaf that wants more and was not stopped; leaves of shapes that are full are stopped now."""
    rows, leaves = tree.rows, tree.facts[q.LEAVES]
    for queue in range(leaves, len(rows)):
        rows[queue, q.SIZE], rows[queue, q.SATURATED], rows[queue, q.STUCK] = 0, 0, -1
    for leaf in range(leaves):
        _begin_leaf(tree, leaf, mode)
    for queue in range(len(rows) - 1, leaves - 1, -1):  # children stand after their parents
        for place in range(rows[queue, q.SIZE] // 2 - 1, -1, -1):
            _sink(tree, queue, place)
        if rows[queue, q.PARENT] >= 0:
            _recount(tree, queue)
            if rows[queue, q.SIZE]:
                _append(tree, queue)
            elif rows[queue, q.SATURATED]:
                _cap(tree, queue)


@inlined
def _begin_leaf(tree: Tree, leaf: int, mode: int) -> None:
    rows, facts = tree.rows, tree.facts
    if rows[leaf, q.HELD] < rows[leaf, q.TARGET] and not rows[leaf, q.STOPPED]:
        full = facts[q.FULL + rows[leaf, q.SHAPE]]
        if full:
            limit = limit_of(rows, facts, leaf, True)
            rows[leaf, q.STOPPED] = limit or full
        elif not mode & GUARANTEED or within_guarantee(rows, leaf):
            _append(tree, leaf)
    if rows[leaf, q.STOPPED] < 0 and rows[leaf, q.HELD]:
        _cap(tree, leaf)


@inlined
def next_leaf(tree: Tree, mode: int) -> tuple[int, int]:
    """Return the next leaf, or `NOBODY` at the end, and with `ASKS_BEYOND` the limit that stops it, else 0."""
    rows, heap, facts = tree
    leaves = facts[q.LEAVES]
    while rows[leaves, q.SIZE]:
        leaf = leaves
        while leaf >= leaves:
            leaf = heap[rows[leaf, q.FIRST]]
        if mode & GUARANTEED and not within_guarantee(rows, leaf):
            _advance(tree, leaf, q.SHARE)
            continue
        limit = limit_of(rows, facts, leaf, True)
        stopped = limit or facts[q.FULL + rows[leaf, q.SHAPE]]
        if not stopped or (limit and mode & ASKS_BEYOND):
            return leaf, limit
        rows[leaf, q.STOPPED] = stopped
        _advance(tree, leaf, stopped)
    return NOBODY, 0


@inlined
def record(tree: Tree, leaf: int, stopped: int, mode: int) -> None:
    """Record that a unit was granted to a leaf (`stopped` 0), or why it was not."""
    rows, facts = tree.rows, tree.facts
    rows[leaf, q.STOPPED] = stopped
    if not stopped:
        hold(rows, leaf, 1)
        charge(rows, facts, leaf, 1)
        rows[leaf, q.TARGET] -= rows[leaf, q.APART]
    elif stopped < 0 and mode & SAME_SHAPE:
        facts[q.FULL + rows[leaf, q.SHAPE]] = stopped


@inlined
def serve(tree: Tree, leaf: int, stopped: int, mode: int) -> None:
    """Record the result for the next leaf, and advance to the one after it."""
    record(tree, leaf, stopped, mode)
    _advance(tree, leaf, stopped)


@inlined
def _advance(tree: Tree, leaf: int, stopped: int) -> None:
    """Let the leaf on top sink, or remove it if it cannot grow; do the same with the queues above it."""
    rows, heap = tree.rows, tree.heap
    child, queue = leaf, rows[leaf, q.PARENT]
    grows, saturated = not stopped and rows[leaf, q.HELD] < rows[leaf, q.TARGET], stopped < 0
    while True:
        if grows:
            _rank(tree, child)
        else:
            rows[queue, q.SIZE] -= 1
            heap[rows[queue, q.FIRST]] = heap[rows[queue, q.FIRST] + rows[queue, q.SIZE]]
            if saturated:
                _cap(tree, child)
        _sink(tree, queue, 0)
        child, queue = queue, rows[queue, q.PARENT]
        if queue < 0:
            break
        _recount(tree, child)
        grows, saturated = rows[child, q.SIZE] > 0, rows[child, q.SATURATED] > 0


# --- heaps ---


@inlined
def _append(tree: Tree, child: int) -> None:
    """Append a child to its queue, whose heap is put in order after all of them."""
    rows, queue = tree.rows, tree.rows[child, q.PARENT]
    _rank(tree, child)
    tree.heap[rows[queue, q.FIRST] + rows[queue, q.SIZE]] = child
    rows[queue, q.SIZE] += 1


@inlined
def _rank(tree: Tree, child: int) -> None:
    """Write the order of a child. At a tie the queue whose next session is older goes first."""
    rows, facts = tree.rows, tree.facts
    if child < facts[q.LEAVES]:
        rows[child, q.PRECEDENCE], rows[child, q.AGE] = -rows[child, q.PRIORITY], rows[child, q.NUMBER]
        if facts[q.BY_AGE]:
            rows[child, q.USED], rows[child, q.WHOLE] = 0, 1
            return
    else:
        rows[child, q.AGE] = rows[tree.heap[rows[child, q.FIRST]], q.AGE]
    share = share_of(tree, child)
    rows[child, q.USED], rows[child, q.WHOLE] = share.used, share.total


@inlined
def _ranked_share(rows: Rows, child: int) -> Share:
    return Share(rows[child, q.USED], rows[child, q.WHOLE], rows[child, q.WEIGHT])


@inlined
def _goes_before(rows: Rows, one: int, two: int) -> bool:
    """Return whether one child is served before another."""
    order = rows[one, q.PRECEDENCE] - rows[two, q.PRECEDENCE]
    if not order:
        order = compare(_ranked_share(rows, one), _ranked_share(rows, two))
    if not order:
        order = rows[one, q.AGE] - rows[two, q.AGE]
    if not order:
        order = rows[one, q.RANK] - rows[two, q.RANK]
    return bool(order < 0) if order else one < two


@inlined
def _sink(tree: Tree, queue: int, place: int) -> None:
    """Let a child that may be too high in the heap sink to its place."""
    rows, heap = tree.rows, tree.heap
    first, size = rows[queue, q.FIRST], rows[queue, q.SIZE]
    if place < size:
        child = heap[first + place]
        below = 2 * place + 1
        while below < size:
            if below + 1 < size and _goes_before(rows, heap[first + below + 1], heap[first + below]):
                below += 1
            if not _goes_before(rows, heap[first + below], child):
                break
            heap[first + place] = heap[first + below]
            place, below = below, 2 * below + 1
        heap[first + place] = child


# --- children that cannot grow ---


@inlined
def _cap(tree: Tree, child: int) -> None:
    """Enter a child that cannot grow for want of room, or count one more of an equal child of its queue."""
    rows, queue = tree.rows, tree.rows[child, q.PARENT]
    rows[queue, q.SATURATED] = 1
    share = share_of(tree, child)
    rows[child, q.CAPPED_USED], rows[child, q.CAPPED_WHOLE] = share.used, share.total
    for dimension in range(q.DIMENSIONS):
        rows[child, q.CAPPED + dimension] = rows[child, q.COUNTED + dimension]
    equal, same = rows[queue, q.STUCK], not rows[child, q.CAPPED_USED]  # what counts nothing cannot count less
    while equal >= 0 and not same:
        same = rows[child, q.WEIGHT] == rows[equal, q.WEIGHT]
        for dimension in range(q.DIMENSIONS):
            same &= rows[child, q.CAPPED + dimension] == rows[equal, q.CAPPED + dimension]
        if same:
            rows[equal, q.TIMES] += 1
        equal = rows[equal, q.NEXT]
    if not same:
        rows[child, q.TIMES], rows[child, q.NEXT] = 1, rows[queue, q.STUCK]
        rows[queue, q.STUCK] = child


@inlined
def _recount(tree: Tree, queue: int) -> None:
    """Write what a queue counts in its parent: children that cannot grow at most at the level of those that can."""
    rows = tree.rows
    above, parent = (0, 0, 0), rows[queue, q.PARENT]
    if rows[queue, q.SIZE] and rows[queue, q.STUCK] >= 0:
        above = _above_the_level(tree, rows[queue, q.STUCK], tree.heap[rows[queue, q.FIRST]])
    for dimension in range(q.DIMENSIONS):
        counted = rows[queue, q.CONTRIBUTED + dimension] - above[dimension]
        rows[parent, q.CONTRIBUTED + dimension] += counted - rows[queue, q.COUNTED + dimension]
        rows[queue, q.COUNTED + dimension] = counted


@inlined
def _above_the_level(tree: Tree, child: int, top: int) -> tuple[int, int, int]:
    """Return what a child that cannot grow, and those after it, count above the share of the next child."""
    rows = tree.rows
    cpu = memory = gpu = 0
    level = share_of(tree, top)
    while child >= 0:
        own = Share(rows[child, q.CAPPED_USED], rows[child, q.CAPPED_WHOLE], rows[child, q.WEIGHT])
        if compare(level, own) < 0:
            a, b, c = rows[child, q.CAPPED], rows[child, q.CAPPED + 1], rows[child, q.CAPPED + 2]
            cpu += rows[child, q.TIMES] * (a - cut(a, level, own))
            memory += rows[child, q.TIMES] * (b - cut(b, level, own))
            gpu += rows[child, q.TIMES] * (c - cut(c, level, own))
        child = rows[child, q.NEXT]
    return cpu, memory, gpu


# --- entries from Python ---


class Filling(NamedTuple):
    """The compiled entries, each with the rows, the heaps and the facts of a tree as its first arguments.

    `begin(mode)` and `serve(leaf, stopped, mode)` return the next leaf and its limit. `record(leaf, stopped, mode)`,
    `leave(leaf, units)` and `limit_of(leaf, leaving)` do what the functions of these names do. `enter_leaves()` enters
    what leaves hold, and `free(leaf, units)` frees what units that count apart held.
    """

    enter_leaves: Callable[..., None]
    begin: Callable[..., tuple[int, int]]
    serve: Callable[..., tuple[int, int]]
    record: Callable[..., None]
    leave: Callable[..., None]
    free: Callable[..., None]
    limit_of: Callable[..., int]


@compiled
def _enter_leaves(rows: Rows, _heap: Rows, facts: Rows) -> None:
    enter_leaves(rows, facts)


@compiled
def _begin(rows: Rows, heap: Rows, facts: Rows, mode: int) -> tuple[int, int]:
    tree = Tree(rows, heap, facts)
    begin(tree, mode)
    return next_leaf(tree, mode)


@compiled
def _serve(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> tuple[int, int]:
    tree = Tree(rows, heap, facts)
    serve(tree, leaf, stopped, mode)
    return next_leaf(tree, mode)


@compiled
def _record(rows: Rows, heap: Rows, facts: Rows, leaf: int, stopped: int, mode: int) -> None:
    record(Tree(rows, heap, facts), leaf, stopped, mode)


@compiled
def _leave(rows: Rows, _heap: Rows, facts: Rows, leaf: int, units: int) -> None:
    leave(rows, facts, leaf, units)


@compiled
def _free(rows: Rows, _heap: Rows, facts: Rows, leaf: int, units: int) -> None:
    hold(rows, leaf, -units)
    charge(rows, facts, leaf, -units)


@compiled
def _limit_of(rows: Rows, _heap: Rows, facts: Rows, leaf: int, leaving: bool) -> int:
    return limit_of(rows, facts, leaf, leaving)


FILLING = Filling(_enter_leaves, _begin, _serve, _record, _leave, _free, _limit_of)
