"""What a container takes of a machine: cards, CPUs, devices and amounts, those in its zones first."""

from __future__ import annotations

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import (
    by_index_in,
    is_amount,
    links_in,
    listed_in,
    machines_in,
    scratch_in,
    supplies_in,
    taken_in,
    verdict_in,
)
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.compiling.steps import PICK, step
from ullage.core.kernel.cpus import are_whole_cores, take_cpus
from ullage.core.kernel.links import pick_linked
from ullage.core.kernel.masks import NIL
from ullage.core.kernel.nearest import CONNECTED, ISLANDS, NEAREST, PARTITION
from ullage.core.kernel.site import MachineRow, Site, supplies_of

_REUSED, _NEAREST, _KNOWN, _ANYWHERE, _PREFERENCES = 0, 1, 2, 3, 4
"""What is taken first: what init containers returned, then what lies in the mask, in known zones, anywhere."""


@compiled
def open_supplies(machine: MachineRow) -> None:
    """Mark all supplies of a machine that have something free as open, with nothing taken yet."""
    supplies, taken = supplies_in(machine.arena), taken_in(machine.arena)
    first, after = supplies_of(machine)
    for at in range(first, after):
        single = not is_amount(supplies[at, b.TOTAL], supplies[at, b.CORE])
        taken[at - first, b.BYTES] = taken[at - first, b.PEAK] = 0
        taken[at - first, b.STATUS] = b.OPEN if single and supplies[at, b.FREE] > 0 else b.OUT_OF_REACH


@compiled
def may_take_cpus(machine: MachineRow, amount: int) -> bool:
    """Return whether a machine tries to allocate so many CPUs: whole cores, where only those are allocated."""
    threads, untouched = machines_in(machine.arena)[machine.row, b.THREADS], verdict_in(machine.arena)[b.ONLY_CARDS]
    first, after = supplies_of(machine)
    supplies = supplies_in(machine.arena)[first:after]
    return not threads or are_whole_cores(supplies, amount, threads, taken_in(machine.arena), untouched)


@compiled
def is_free(machine: MachineRow, resource: int, amount: int) -> bool:
    supplies = supplies_in(machine.arena)
    first, after = supplies_of(machine)
    for at in range(first, after):
        if supplies[at, b.RESOURCE] == resource:
            amount -= max(0, supplies[at, b.FREE])
        if amount <= 0:
            return True
    return False


@compiled
def take(site: Site, need: Rows, mask: int, marks: Rows) -> bool:
    """Take what a container needs of one resource, in its zones first. Return whether it was too little."""
    arena = site.machine.arena
    machines, resource, amount = machines_in(arena), need[b.NEEDED], need[b.AMOUNT]
    short = resource == b.CARDS and _take_cards(site, need, mask, marks)
    if resource == b.CARDS and not machines[site.machine.row, b.CARDS_COUNTED]:
        return short
    if resource == b.CARDS and verdict_in(arena)[b.ONLY_CARDS]:
        return bool(short or not is_free(site.machine, b.CARDS, amount))
    first, after = supplies_of(site.machine)
    supplies, taken = supplies_in(arena)[first:after], taken_in(arena)
    if resource == b.CPUS and supplies[0, b.RESOURCE] == b.CPUS and supplies[0, b.CORE] >= 0:
        return take_cpus(supplies, amount, mask, taken, machines[site.machine.row, b.KUBELET] < 0)
    return bool(_take_supplies(supplies, resource, amount, mask, taken) or short)


@compiled
def _is_preferred(preference: int, status: int, zones: int, mask: int) -> bool:
    """Return whether something of this status, in these zones, is taken by this preference."""
    if preference == _REUSED:
        return status == b.REUSABLE
    if status != b.OPEN:
        return False
    return bool(mask == NIL or zones & mask) if preference == _NEAREST else bool(zones or preference == _ANYWHERE)


@compiled
def _take_cards(site: Site, need: Rows, mask: int, marks: Rows) -> bool:
    """Take cards, one preference after the other. Return whether they are too few.

    Where a preference leaves a choice, a device plugin picks: the lowest cards, or those of a rule that is known.
    Where Ullage picks it takes those that are joined best and break least, or the best connected ones if the request
    asks for them: then zones count only if it is aligned.
    """
    arena, amount = site.machine.arena, need[b.AMOUNT]
    cards, first, count = site.cards, site.first_card, len(marks)
    binds, picker = machines_in(arena)[site.machine.row, b.KUBELET] < 0, machines_in(arena)[site.machine.row, b.PICKER]
    rule = _rule_of(picker, need[b.CONNECT])
    by_index, may = by_index_in(arena)[first : first + count], scratch_in(arena)[0, :count]
    for preference in range(_PREFERENCES):
        if amount <= 0:
            break
        found = 0
        for k in range(len(marks)):
            zones = cards[first + k, c.ZONES]
            near = zones != 0 or preference != _NEAREST or not binds or rule in (CONNECTED, ISLANDS)
            may[k] = near and _is_preferred(preference, marks[k], zones, mask)
            found += may[k]
        if picker != b.LOWEST and found > amount:
            pick(site.nodes, cards, site.row, site.nodes[:0], may, arena, amount, rule)
        for k in by_index:
            if amount > 0 and may[k]:
                marks[k] = b.HELD
                amount -= 1
    return bool(amount > 0)


@compiled
def _rule_of(picker: int, demand: int) -> int:
    """Return the rule of `core/kernel/nearest.py` by which cards are picked, for what a request asks of links."""
    if picker == b.BY_PARTITION:
        return PARTITION
    if demand == b.BEST_LINKS:
        return CONNECTED
    return ISLANDS if demand == b.ONE_ISLAND else NEAREST


@step(PICK)
def pick(nodes: Rows, _: Rows, row: int, __: Rows, may: Rows, arena: Rows, count: int, rule: int) -> int:
    """Reduce the cards of a node that may be taken (1) to so many that go together best; there are enough."""
    chosen = scratch_in(arena)[1, :count]
    pick_linked(links_in(arena), nodes, row, may, may[:0], chosen, rule)
    may[:] = 0
    for card in chosen:
        may[card - nodes[row, c.FIRST_CARD]] = 1
    return 0


@compiled
def _take_supplies(supplies: Rows, resource: int, amount: int, mask: int, taken: Rows) -> bool:
    """Take devices, or amounts of zones, by the same preferences. Return whether they are too few."""
    for preference in range(_PREFERENCES):
        for at in range(len(supplies)):
            if supplies[at, b.RESOURCE] != resource or amount <= 0:
                continue
            zones = supplies[at, b.ZONES]
            if is_amount(supplies[at, b.TOTAL], supplies[at, b.CORE]):
                left = max(0, supplies[at, b.FREE] - taken[at, b.BYTES])
                some = min(amount, left) if _is_preferred(preference, b.OPEN, zones, mask) else 0
                taken[at, b.BYTES] += some
                amount -= some
            elif _is_preferred(preference, taken[at, b.STATUS], zones, mask):
                taken[at, b.STATUS] = b.HELD
                amount -= 1
    return bool(amount > 0)


@compiled
def return_to_pod(marks: Rows, taken: Rows, marks_before: Rows, taken_before: Rows) -> None:
    """Let the next containers reuse what an init container took; what sidecars took before it stays held."""
    for k in range(len(marks)):
        if marks[k] == b.HELD != marks_before[k]:
            marks[k] = b.REUSABLE
    for at in range(len(taken)):
        if taken[at, b.STATUS] == b.HELD != taken_before[at, b.STATUS]:
            taken[at, b.STATUS] = b.REUSABLE
        taken[at, b.PEAK] = max(taken[at, b.PEAK], taken[at, b.BYTES])
        taken[at, b.BYTES] = taken_before[at, b.BYTES]


@compiled
def hold_supplies(machine: MachineRow, sign: int) -> None:
    """Take (1) what the last decision takes from what is free in the zones of a machine, or return it (-1)."""
    supplies, taken = supplies_in(machine.arena), taken_in(machine.arena)
    first, after = supplies_of(machine)
    for at in range(first, after):
        own = taken[at - first]
        supplies[at, b.FREE] -= sign * ((own[b.STATUS] >= b.HELD) + max(own[b.BYTES], own[b.PEAK]))


@compiled
def list_supplies(machine: MachineRow) -> None:
    """Write the list of the supplies that the last decision takes on a machine."""
    arena = machine.arena
    supplies, taken, listed = supplies_in(arena), taken_in(arena), listed_in(arena)
    zones = cpus = others = 0
    first, after = supplies_of(machine)
    for at in range(first, after):
        own = taken[at - first]
        amount = max(own[b.BYTES], own[b.PEAK])
        if own[b.STATUS] < b.HELD and not amount:
            continue
        zones |= supplies[at, b.ZONES]
        if supplies[at, b.RESOURCE] == b.CPUS and not amount:
            listed[b.FIRST_LISTED + cpus] = supplies[at, b.ID]
            cpus += 1
        else:
            to = b.FIRST_LISTED + cpus + others * b.LISTED_COLUMNS
            listed[to], listed[to + 1] = at - first, supplies[at, b.RESOURCE]
            listed[to + 2], listed[to + 3] = supplies[at, b.ID], amount
            others += 1
    listed[b.LISTED_ZONES], listed[b.LISTED_CPUS], listed[b.LISTED_OTHERS] = zones, cpus, others
