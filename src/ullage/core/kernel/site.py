"""One node and its machine, as the functions of alignment take them."""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import machines_in
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import inlined


class Site(NamedTuple):
    """A node on which a request is aligned: its row, its first card, its machine (-1: zones are unknown), the arena."""

    nodes: Rows
    cards: Rows
    row: int
    first_card: int
    machine: int
    arena: Rows


@inlined
def site_of(nodes: Rows, cards: Rows, row: int, arena: Rows) -> Site:
    """Return the record of a node."""
    return Site(nodes, cards, row, nodes[row, c.FIRST_CARD], nodes[row, c.MACHINE], arena)


@inlined
def supplies_of(site: Site) -> tuple[int, int]:
    """Return the first supply of a machine, and one after the last."""
    machines, machine = machines_in(site.arena), site.machine
    return (machines[machine, b.FIRST_SUPPLY], machines[machine, b.AFTER_SUPPLIES]) if machine >= 0 else (0, 0)
