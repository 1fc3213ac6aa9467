"""Progressive filling alone: units granted per second, against the number of queues.

Work: a tree of queues with weights 1 to 3, two sessions in each queue at the bottom, requests of four shapes. A
grant only counts, so what is timed is whose turn it is and what a unit changes. Three ways, which must give
everybody the same: the rule compiled with the grant compiled into it; the same, with a call of Python for each
grant, as the scheduler does to place the unit; and the rule written plainly, with a heap of tuples per queue and
shares as big integers. Time is that of the process, so that neighbours on the machine count less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from heapq import heapify, heapreplace
from math import lcm

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.filling import SAME_SHAPE, begin, next_leaf, serve
from ullage.core.kernel.queues import WEIGHT, Tree
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources

_GIB = 1 << 30
_SHAPES = ((4_000, 16 * _GIB, 1_000), (8_000, 64 * _GIB, 2_000), (16_000, 8 * _GIB, 0), (2_000, 4 * _GIB, 250))
_TOTAL = Resources(128_000_000, 1_031_871_000 << 20, 8_000_000)
"""1,000 nodes; their memory is no round number."""
_SIZES = ((1_000,), (10, 10, 10), (20, 50, 100))
_UNITS, _UNITS_OF_PYTHON = 1_000_000, 200_000


def tree_of(branches: tuple[int, ...]) -> tuple[list[Queue], list[str]]:
    """Queues that branch so at each level; those at the bottom."""
    queues, above = list[Queue](), [ROOT]
    for count in branches:
        level = [Queue(f"{parent}.{n}", parent, 1 + n % 3) for parent in above for n in range(count)]
        queues += level
        above = [queue.name for queue in level]
    return queues, above


def leaves_of(bottom: list[str]) -> list[Leaf]:
    return [
        Leaf(f"s{n}", bottom[n // 2], _SHAPES[n % 4], number=n, weight=1 + n % 3, target=_UNITS, shape=n % 4)
        for n in range(2 * len(bottom))
    ]


@compiled
def fill_compiled(rows: Rows, heap: Rows, facts: Rows, units: int) -> None:
    """The filling with a compiled grant: so many units, then none."""
    tree = Tree(rows, heap, facts)
    begin(tree, SAME_SHAPE)
    leaf, _ = next_leaf(tree, SAME_SHAPE)
    while leaf >= 0:
        serve(tree, leaf, 0 if units > 0 else -1, SAME_SHAPE)
        units -= 1
        leaf, _ = next_leaf(tree, SAME_SHAPE)


def fill_with_calls(tree: ShareTree, units: int) -> None:
    def grant(_leaf: Leaf) -> Code | None:
        nonlocal units
        units -= 1
        return None if units >= 0 else Code.GPU

    tree.fill(grant, same_shape=True)


def fill_plainly(queues: list[Queue], leaves: list[Leaf], units: int) -> dict[str, int]:
    """Without limits, guarantees and children that cannot grow: nothing here has them before the last unit."""
    weights = lcm(1, 2, 3)
    common = lcm(*_TOTAL)
    scales = [common // amount * weights for amount in _TOTAL]
    above = {queue.name: queue for queue in queues}
    used = {name: [0, 0, 0] for name in (ROOT, *above, *(leaf.session for leaf in leaves))}
    heaps: dict[str, list[tuple[int, int, str]]] = {name: [] for name in (ROOT, *above)}
    place = {leaf.session: leaf for leaf in leaves}
    weight = {name: queue.weight for name, queue in above.items()}
    weight |= {leaf.session: leaf.start[WEIGHT] for leaf in leaves}

    def share(name: str) -> int:
        return max(amount * scale for amount, scale in zip(used[name], scales, strict=True)) // weight[name]

    for number, leaf in enumerate(leaves):
        heaps[leaf.queue].append((0, number, leaf.session))
    for each in reversed(queues):
        heapify(heaps[each.name])
        heaps[each.parent].append((0, heaps[each.name][0][1], each.name))
    heapify(heaps[ROOT])
    held = dict.fromkeys(place, 0)
    for _ in range(units):
        path, name = [ROOT], heaps[ROOT][0][2]
        while name in heaps:
            path.append(name)
            name = heaps[name][0][2]
        held[name] += 1
        number = heaps[path[-1]][0][1]
        unit = place[name].unit
        for holder in (name, *path):
            used[holder] = [a + b for a, b in zip(used[holder], unit, strict=True)]
        for queue in reversed(path):
            heapreplace(heaps[queue], (share(name), number, name))
            name, number = queue, heaps[queue][0][1]
    return held


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    fill = fill_compiled
    fill(*ShareTree(_TOTAL, [], []).columns, 0)
    print(f"Progressive filling alone, {len(_SHAPES)} shapes, two sessions per queue at the bottom: units per second")
    print(f"  {'queues':>8}  {'levels':>6}  {'compiled':>10}  {'with calls':>10}  {'plain':>9}  {'compiled/plain':>14}")
    for branches in _SIZES:
        queues, bottom = tree_of(branches)
        tree = ShareTree(_TOTAL, queues, leaves_of(bottom))
        long = _UNITS / seconds(partial(fill, *tree.columns, _UNITS))
        trees = [ShareTree(_TOTAL, queues, leaves_of(bottom)) for _ in range(2)]
        fill(*trees[0].columns, _UNITS_OF_PYTHON)
        called = _UNITS_OF_PYTHON / seconds(partial(fill_with_calls, trees[1], _UNITS_OF_PYTHON))
        begun = time.process_time()
        held = fill_plainly(queues, leaves_of(bottom), _UNITS_OF_PYTHON)
        plain = _UNITS_OF_PYTHON / (time.process_time() - begun)
        assert held == trees[0].executors() == trees[1].executors()
        ratio = f"{long / plain:.0f} x"
        print(f"  {len(queues):>8,}  {len(branches):>6}  {long:>10,.0f}  {called:>10,.0f}  {plain:>9,.0f}  {ratio:>14}")


if __name__ == "__main__":
    main()
