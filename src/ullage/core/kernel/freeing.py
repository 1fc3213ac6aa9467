"""Which holders to move off a node so that units of whole cards fit there, and how to spread units over nodes.

Costs are sums of one number per holder, so that a set costs what its members do. Only those move who hold one
of the cards that are freed. The cards of a node are bits of a number, so nodes of more than `BITS` are left alone.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.board import FREE, supplies_in
from ullage.core.kernel.columns import (
    AFTER_CARDS,
    COUNT,
    CPU,
    CPU_FREE,
    FIRST_CARD,
    MEMORY,
    MEMORY_FREE,
    NEEDS,
    Flags,
    Rows,
)
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import width_of
from ullage.core.kernel.occupants import AFTER_CHARGE, CARD, COMPUTE, FIRST_CHARGE
from ullage.core.kernel.room import units_on
from ullage.core.kernel.verdict import slots_left
from ullage.core.kernel.zones import ROOM, decide

Zones = tuple[Rows, Rows, Rows]
"""What holders have in the zones of their machines: entries and charges as in `kernel/occupants.py`, and these."""

NEVER = 2**62
"""The cost of what cannot be."""

# A holder.
MASK, MOVABLE, ITS_CPU, ITS_MEMORY, COST = 0, 1, 2, 3, 4
"""Its cards of the node as bits; whether it may be moved; what it gives back; what moving it costs."""
HOLDER_COLUMNS = 5

BITS = 62
"""Cards of a node that are distinguished."""

_MOST = 16
"""Cards of a node that are thought of as freed: the cheapest, where more are held."""


@compiled
def freeable(
    cards: Rows, empty: Rows, first: int, after: int, shape: Rows, holders: Rows, stays: int
) -> tuple[int, Rows]:
    """Return the cards of a node that are free now, as bits, and the positions of those that could be freed by moves.

    Cards in `stays` are never freed.
    """
    movable = idle = 0
    for j in range(len(holders)):
        if holders[j, MOVABLE]:
            movable |= holders[j, MASK]
        else:
            stays |= holders[j, MASK]
    found, prices = np.empty(after - first, np.int64), np.empty(after - first, np.int64)
    taken = 0
    for k in range(after - first):
        if units_on(empty, first + k, shape) == 0:
            continue
        if units_on(cards, first + k, shape) > 0:
            idle |= 1 << k
        elif (movable & ~stays) >> k & 1:
            price, at = 0, taken
            for j in range(len(holders)):
                if holders[j, MASK] >> k & 1:
                    price += holders[j, COST]
            while at > 0 and prices[at - 1] > price:
                found[at], prices[at] = found[at - 1], prices[at - 1]
                at -= 1
            found[at], prices[at] = k, price
            taken += 1
    return idle, found[: min(taken, _MOST)]


@compiled
def free_on_node(
    nodes: Rows,
    cards: Rows,
    empty: Rows,
    row: int,
    shape: Rows,
    holders: Rows,
    stays: int,
    bans: Rows,
    zones: Zones,
    begin: int,
    costs: Rows,
    picks: Rows,
) -> None:
    """Write, per number of units, the least cost with which so many fit, and the cards to be freed, as bits.

    A ban is a node, a number of units, and cards that are not to be freed for them. The entries of the node
    `begin` there.
    """
    idle, spots = freeable(cards, empty, nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS], shape, holders, stays)
    slots = slots_left(nodes, row, shape)
    for subset in range(1 << len(spots)):
        mask = 0
        for k in range(len(spots)):
            if subset >> k & 1:
                mask |= 1 << spots[k]
        units, cost = units_by_sums(nodes[row], shape, holders, mask, idle | mask, slots)
        units, better = min(units, len(costs) - 1), False
        for some in range(1, units + 1):
            better |= cost < costs[some]
        if better and shape[0, NEEDS]:
            units = units_in_zones(nodes, cards, row, shape, holders, mask, idle | mask, zones, begin, units)
        for some in range(1, units + 1):
            if cost < costs[some] and not banned(bans, row, some, mask):
                costs[some], picks[some] = cost, mask


@compiled
def units_by_sums(node: Rows, shape: Rows, holders: Rows, freed: int, free: int, slots: int) -> tuple[int, int]:
    """Return how many units fit on a node when some cards are freed, with the cards in `free`, and the cost of that."""
    cpu, memory, cost = node[CPU_FREE], node[MEMORY_FREE], 0
    for j in range(len(holders)):
        if holders[j, MASK] & freed:
            cpu += holders[j, ITS_CPU]
            memory += holders[j, ITS_MEMORY]
            cost += holders[j, COST]
            slots += 1
    units = min(width_of(free) // shape[0, COUNT], slots)
    if shape[0, CPU]:
        units = min(units, cpu // shape[0, CPU])
    if shape[0, MEMORY]:
        units = min(units, memory // shape[0, MEMORY])
    return int(units), int(cost)


@compiled
def units_in_zones(
    nodes: Rows,
    cards: Rows,
    row: int,
    shape: Rows,
    holders: Rows,
    freed: int,
    free: int,
    zones: Zones,
    begin: int,
    units: int,
) -> int:
    """Return how many of these units zones allow when some cards are freed, with the cards in `free`."""
    entries, charges, store = zones
    for sign in (1, -1):
        for j in range(len(holders)):
            if holders[j, MASK] & freed:
                for at in range(entries[begin + j, FIRST_CHARGE], entries[begin + j, AFTER_CHARGE]):
                    if charges[at, CARD] < 0:
                        supplies_in(store)[-1 - charges[at, CARD], FREE] += sign * charges[at, COMPUTE]
        if sign > 0:
            may = np.zeros(nodes[row, AFTER_CARDS] - nodes[row, FIRST_CARD], np.int64)
            for k in range(len(may)):
                may[k] = free >> k & 1
            units = decide(nodes, cards, row, shape, may, store, ROOM, units)
    return units


@compiled
def banned(bans: Rows, row: int, units: int, mask: int) -> bool:
    """Return whether a node is excluded with this number of units and these freed cards."""
    for ban in bans:  # noqa: SIM110 - a generator is not compiled
        if ban[0] == row and ban[1] == units and ban[2] == mask:
            return True
    return False


@compiled
def free_on_nodes(
    nodes: Rows,
    cards: Rows,
    empty: Rows,
    opened: Flags,
    shape: Rows,
    starts: Rows,
    holders: Rows,
    stays: Rows,
    rows: Rows,
    bans: Rows,
    zones: Zones,
    costs: Rows,
    picks: Rows,
) -> None:
    """Compile the loop over nodes: costs and cards as `free_on_node` writes them, nothing for nodes not `opened`.

    `starts` says where the holders of each node begin among all of them, `stays` which of its cards are not to
    be freed, as bits; `rows` which nodes to look at.
    """
    for row in rows:
        costs[row] = NEVER
        costs[row, 0] = 0
        if opened[row] and nodes[row, AFTER_CARDS] - nodes[row, FIRST_CARD] <= BITS:
            here = holders[starts[row] : starts[row + 1]]
            there = bans, zones, starts[row], costs[row], picks[row]
            free_on_node(nodes, cards, empty, row, shape, here, stays[row], *there)


@compiled
def share_out(costs: Rows, units: int) -> Rows:
    """Units per node that come to so many in all for the least cost; nothing if there is no way.

    Ties go to the first nodes.
    """
    rows, most = len(costs), costs.shape[1] - 1
    least = np.full(units + 1, NEVER, np.int64)
    least[0] = 0
    taken = np.zeros((rows, units + 1), np.int16)
    for row in range(rows - 1, -1, -1):  # the last node first, so that an equal earlier one is preferred
        for total in range(units, 0, -1):
            for some in range(1, min(most, total) + 1):
                if costs[row, some] == NEVER or least[total - some] == NEVER:
                    continue
                cost = costs[row, some] + least[total - some]
                if cost <= least[total]:
                    least[total], taken[row, total] = cost, some
    found = np.zeros(rows, np.int64)
    if least[units] == NEVER:
        return found[:0]
    left = units
    for row in range(rows):
        found[row] = taken[row, left]
        left -= found[row]
    return found
