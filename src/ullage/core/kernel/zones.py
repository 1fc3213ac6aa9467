"""Decisions over zones for the loops of strategies: one step, which they call by its address."""

from __future__ import annotations

from ullage.core.kernel.alignment import aligned_room, may_settle, settle
from ullage.core.kernel.board import SEATED, machines_in, supplies_in, taken_in
from ullage.core.kernel.columns import MACHINE, NAMED, NEEDS, Rows
from ullage.core.kernel.compiling.steps import DECIDE, step
from ullage.core.kernel.taking import spend

FIT, TAKE, SPEND, ROOM = 0, 1, 2, 3
"""What is asked: `may_settle`; `settle`; to hold what `settle` decided, if
it is; `aligned_room`, of so many units at most."""


@step(DECIDE)
def decide(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, asked: int, most: int) -> int:
    """The answer for one node: 1 or 0, or how many units; `units` is changed as the function says that is asked."""
    if asked == FIT:
        return int(may_settle(nodes, cards, row, shape, units, store))
    if asked == TAKE:
        return int(settle(nodes, cards, row, shape, units, store))
    if asked == ROOM:
        return int(aligned_room(nodes, cards, row, shape, units, store, most))
    held = shape[len(shape) - shape[0, NAMED] - shape[0, NEEDS], SEATED]
    if held:
        spend(machines_in(store), supplies_in(store), nodes[row, MACHINE], taken_in(store), 1)
    return int(held)
