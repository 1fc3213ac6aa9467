"""Decisions over zones for the loops of strategies: one step, which they call through the table of addresses."""

from __future__ import annotations

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.alignment import aligned_units, choose_aligned, first_need, may_align
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiling.steps import DECIDE, step
from ullage.core.kernel.site import MachineRow
from ullage.core.kernel.taking import hold_supplies

FIT, TAKE, SPEND, ROOM = 0, 1, 2, 3
"""The question: `may_align`; `choose_aligned`; hold the supplies of the last `TAKE`, if the request holds any;
`aligned_units`, of at most so many."""


@step(DECIDE)
def decide(nodes: Rows, cards: Rows, row: int, shape: Rows, marks: Rows, arena: Rows, question: int, most: int) -> int:
    """Answer a question about one node: 1 or 0, or a number of units; `marks` changes as the question says."""
    if question == FIT:
        return int(may_align(nodes, cards, row, shape, marks, arena))
    if question == TAKE:
        return int(choose_aligned(nodes, cards, row, shape, marks, arena))
    if question == ROOM:
        return int(aligned_units(nodes, cards, row, shape, marks, arena, most))
    held = shape[first_need(shape), b.SEATED]
    if held:
        hold_supplies(MachineRow(nodes[row, c.MACHINE], arena), 1)
    return int(held)
