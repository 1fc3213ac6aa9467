"""The hints of one container for one resource of a machine: which sets of zones have as much as it needs.

They go by what lies in the zones of the machine: cards of its node, and its other supplies.
"""

from __future__ import annotations

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    AMOUNT,
    BY_TOTAL,
    BYTES,
    CARDS,
    CARDS_COUNTED,
    CORE,
    CPUS,
    FIRST_SUPPLY,
    FREE,
    KUBELET,
    MARK,
    MEMORY,
    NEEDED,
    ONLY_CARDS,
    OPEN,
    RESOURCE,
    REUSABLE,
    STATIC_CPUS,
    STATIC_MEMORY,
    TOTAL,
    in_bytes,
    machines_in,
    supplies_in,
    taken_in,
    verdict_in,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import FIRST_CARD, MACHINE, ZONES, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import NIL, NONE, PREFERRED, gather, hint, keep_masks


@compiled
def hint_of(
    nodes: Rows,
    cards: Rows,
    row: int,
    policy: int,
    need: Rows,
    store: Rows,
    units: Rows,
    hints: Rows,
    counts: Rows,
) -> None:
    """The hints of one resource for one container; nil, preferred, if it has nothing to say."""
    machine, resource, total, free, reuse = nodes[row, MACHINE], need[NEEDED], counts[0], counts[1], counts[2]
    machines = machines_in(store)
    counts[:] = 0
    hints[:] = 0
    if is_handed_out(store, machine, policy, resource):
        if resource == CARDS and not machines[machine, CARDS_COUNTED]:
            _count_cards(nodes, cards, row, units, total, free, reuse)
        else:
            _count_supplies(store, machine, resource, total, free, reuse)
    known = 0
    for mask in range(1, len(total)):
        known |= mask if total[mask] else 0
    if not known:
        hints[NIL] = PREFERRED
        return
    kept = 0
    for mask in range(1, len(reuse)):
        kept += reuse[mask]
    gather(total)
    gather(free)
    hint(need[AMOUNT], total if machines[machine, BY_TOTAL] else free, free, hints)
    if resource == CPUS:  # their manager knows no zone without CPUs
        for mask in range(1, len(hints)):
            hints[mask] = 0 if mask & ~known else hints[mask]
    if kept:
        gather(reuse)
        keep_masks(hints, reuse, kept)


@compiled
def _count_cards(nodes: Rows, cards: Rows, row: int, units: Rows, total: Rows, free: Rows, reuse: Rows) -> None:
    """Count cards by the exact set of zones they lie in: all, those to be had, those given back."""
    for k in range(len(units)):
        zones = cards[nodes[row, FIRST_CARD] + k, ZONES]
        total[zones] += 1
        free[zones] += units[k] in (OPEN, REUSABLE)
        reuse[zones] += units[k] == REUSABLE


@compiled
def _count_supplies(store: Rows, machine: int, resource: int, total: Rows, free: Rows, reuse: Rows) -> None:
    """Count supplies of a resource by the exact set of zones they lie in."""
    machines, supplies, taken = machines_in(store), supplies_in(store), taken_in(store)
    first = machines[machine, FIRST_SUPPLY]
    untouched = verdict_in(store)[ONLY_CARDS]
    for at in range(first, machines[machine, AFTER_SUPPLIES]):
        if supplies[at, RESOURCE] != resource:
            continue
        zones = supplies[at, SUPPLY_ZONES]
        total[zones] += supplies[at, TOTAL]
        if untouched:
            free[zones] += max(0, supplies[at, FREE])
            continue
        own = taken[at - first, MARK]
        if in_bytes(supplies[at, TOTAL], supplies[at, CORE]):
            free[zones] += max(0, supplies[at, FREE] - taken[at - first, BYTES])
        else:
            free[zones] += own in (OPEN, REUSABLE)
            reuse[zones] += own == REUSABLE


@compiled
def free_cards(nodes: Rows, cards: Rows, row: int, units: Rows, damage: Rows) -> None:
    """By mask, the cards that are free there: a set of zones with few is broken already, and does least damage."""
    damage[:] = 0
    for k in range(len(units)):
        damage[cards[nodes[row, FIRST_CARD] + k, ZONES]] += units[k] == OPEN
    gather(damage)


@compiled
def is_handed_out(store: Rows, machine: int, policy: int, resource: int) -> bool:
    """Whether a resource has owners of its own there: cards always, others if they are recorded and managed."""
    machines = machines_in(store)
    if resource == CARDS:
        return True
    managed = True
    if resource in (CPUS, MEMORY):
        managed = bool(machines[machine, STATIC_CPUS if resource == CPUS else STATIC_MEMORY])
        managed = managed if machines[machine, KUBELET] >= 0 else policy > NONE
    return managed and _recorded(store, machine, resource)


@compiled
def _recorded(store: Rows, machine: int, resource: int) -> bool:
    """Whether a machine says anything of a resource."""
    machines, supplies = machines_in(store), supplies_in(store)
    for at in range(machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]):
        if supplies[at, RESOURCE] == resource:
            return True
    return False
