"""The hints of a container for one resource of a machine: which sets of zones have as much as it needs.

They follow from the cards of the node and from the other supplies of the machine.
"""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import is_amount, machines_in, supplies_in, taken_in, verdict_in
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import NIL, NONE, PREFERRED, gather, hint, keep_masks
from ullage.core.kernel.site import MachineRow, Site, supplies_of


class Counts(NamedTuple):
    """Counts of one resource by mask: in all, free, and returned by init containers."""

    total: Rows
    free: Rows
    reuse: Rows


@compiled
def hint_of(site: Site, policy: int, need: Rows, marks: Rows, hints: Rows, counts: Counts) -> None:
    """Write the hints of one resource for one container; nil, preferred, where the resource has no zones."""
    machines, resource = machines_in(site.machine.arena), need[b.NEEDED]
    total, free, reuse = counts
    for mask in range(len(hints)):
        total[mask] = free[mask] = reuse[mask] = hints[mask] = 0
    if is_allocated_exclusively(site.machine, policy, resource):
        if resource == b.CARDS and not machines[site.machine.row, b.CARDS_COUNTED]:
            _count_cards(site, marks, counts)
        else:
            _count_supplies(site.machine, resource, counts)
    zones = 0
    for mask in range(1, len(total)):
        zones |= mask if total[mask] else 0
    if not zones:
        hints[NIL] = PREFERRED
        return
    returned = 0
    for mask in range(1, len(reuse)):
        returned += reuse[mask]
    gather(total)
    gather(free)
    hint(need[b.AMOUNT], total if machines[site.machine.row, b.BY_TOTAL] else free, free, hints)
    if resource == b.CPUS:  # their manager knows no zone without CPUs
        for mask in range(1, len(hints)):
            hints[mask] = 0 if mask & ~zones else hints[mask]
    if returned:
        gather(reuse)
        keep_masks(hints, reuse, returned)


@compiled
def _count_cards(site: Site, marks: Rows, counts: Counts) -> None:
    """Count cards by the exact set of zones they lie in."""
    total, free, reuse = counts
    cards, first = site.cards, site.first_card
    for k in range(len(marks)):
        zones = cards[first + k, c.ZONES]
        total[zones] += 1
        free[zones] += marks[k] in (b.OPEN, b.REUSABLE)
        reuse[zones] += marks[k] == b.REUSABLE


@compiled
def _count_supplies(machine: MachineRow, resource: int, counts: Counts) -> None:
    """Count supplies of a resource by the exact set of zones they lie in."""
    arena = machine.arena
    supplies, taken, untouched = (
        supplies_in(arena),
        taken_in(arena),
        verdict_in(arena)[b.ONLY_CARDS],
    )
    total, free, reuse = counts
    first, after = supplies_of(machine)
    for at in range(first, after):
        if supplies[at, b.RESOURCE] != resource:
            continue
        zones = supplies[at, b.ZONES]
        total[zones] += supplies[at, b.TOTAL]
        if untouched:
            free[zones] += max(0, supplies[at, b.FREE])
            continue
        status = taken[at - first, b.STATUS]
        if is_amount(supplies[at, b.TOTAL], supplies[at, b.CORE]):
            free[zones] += max(0, supplies[at, b.FREE] - taken[at - first, b.BYTES])
        else:
            free[zones] += status in (b.OPEN, b.REUSABLE)
            reuse[zones] += status == b.REUSABLE


@compiled
def free_cards(site: Site, marks: Rows, damage: Rows) -> None:
    """Write the number of free cards by mask: to take from a set of zones with few of them does least damage."""
    cards, first = site.cards, site.first_card
    damage[:] = 0
    for k in range(len(marks)):
        damage[cards[first + k, c.ZONES]] += marks[k] == b.OPEN
    gather(damage)


@compiled
def is_allocated_exclusively(machine: MachineRow, policy: int, resource: int) -> bool:
    """Return whether a resource is allocated exclusively: cards always, others if they are recorded and managed."""
    machines, row = machines_in(machine.arena), machine.row
    if resource == b.CARDS:
        return True
    managed = True
    if resource in (b.CPUS, b.MEMORY):
        managed = bool(machines[row, b.STATIC_CPUS if resource == b.CPUS else b.STATIC_MEMORY])
        managed = managed if machines[row, b.KUBELET] >= 0 else policy > NONE
    return managed and _is_recorded(machine, resource)


@compiled
def _is_recorded(machine: MachineRow, resource: int) -> bool:
    supplies = supplies_in(machine.arena)
    first, after = supplies_of(machine)
    for at in range(first, after):  # noqa: SIM110 - a generator is not compiled
        if supplies[at, b.RESOURCE] == resource:
            return True
    return False
