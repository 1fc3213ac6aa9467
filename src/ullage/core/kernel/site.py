"""One node and its machine, as the functions of alignment take them."""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import machines_in
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import inlined


class MachineRow(NamedTuple):
    """A machine by its row in the arena; a row of -1 means that its zones are unknown."""

    row: int
    arena: Rows


class Site(NamedTuple):
    """A node on which a request is aligned: its row, its first card, and its machine."""

    nodes: Rows
    cards: Rows
    row: int
    first_card: int
    machine: MachineRow


@inlined
def site_of(nodes: Rows, cards: Rows, row: int, arena: Rows) -> Site:
    return Site(nodes, cards, row, nodes[row, c.FIRST_CARD], MachineRow(nodes[row, c.MACHINE], arena))


@inlined
def supplies_of(machine: MachineRow) -> tuple[int, int]:
    """Return the first supply of a machine, and one after the last."""
    machines, row = machines_in(machine.arena), machine.row
    return (machines[row, b.FIRST_SUPPLY], machines[row, b.AFTER_SUPPLIES]) if row >= 0 else (0, 0)
