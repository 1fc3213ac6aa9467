"""What a container takes of a machine: cards, CPUs, devices and bytes, those in its zones first."""

from __future__ import annotations

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    AMOUNT,
    BYTES,
    CARDS,
    CARDS_COUNTED,
    CORE,
    CPUS,
    FIRST_SUPPLY,
    FIRST_TOLD,
    FREE,
    HELD,
    ID,
    KUBELET,
    MARK,
    NEEDED,
    ONLY_CARDS,
    OPEN,
    OUT_OF_REACH,
    PEAK,
    RESOURCE,
    REUSABLE,
    THREADS,
    TOLD_COLUMNS,
    TOLD_CPUS,
    TOLD_OTHERS,
    TOLD_ZONES,
    TOTAL,
    by_index_in,
    in_bytes,
    links_in,
    machines_in,
    spare_in,
    supplies_in,
    taken_in,
    told_in,
    verdict_in,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import FIRST_CARD, MACHINE, ZONES, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.compiling.steps import PICK, step
from ullage.core.kernel.cpus import are_whole_cores, take_cpus
from ullage.core.kernel.links import pick_linked
from ullage.core.kernel.masks import NIL

_REUSED, _NEAREST, _KNOWN, _ANYWHERE, _PREFERENCES = 0, 1, 2, 3, 4


@compiled
def open_supplies(store: Rows, machine: int) -> None:
    """All supplies of a machine that anything is left of are open; of bytes nothing is taken yet."""
    machines, supplies, taken = machines_in(store), supplies_in(store), taken_in(store)
    first = machines[machine, FIRST_SUPPLY]
    for at in range(first, machines[machine, AFTER_SUPPLIES]):
        counted = not in_bytes(supplies[at, TOTAL], supplies[at, CORE])
        taken[at - first, BYTES] = taken[at - first, PEAK] = 0
        taken[at - first, MARK] = OPEN if counted and supplies[at, FREE] > 0 else OUT_OF_REACH


@compiled
def may_take_cpus(store: Rows, machine: int, amount: int) -> bool:
    """Whether a machine tries to give so many CPUs: whole cores, where only those are handed out."""
    machines = machines_in(store)
    threads, untouched = machines[machine, THREADS], verdict_in(store)[ONLY_CARDS]
    supplies = supplies_in(store)[machines[machine, FIRST_SUPPLY] : machines[machine, AFTER_SUPPLIES]]
    return not threads or are_whole_cores(supplies, amount, threads, taken_in(store), untouched)


@compiled
def is_left(store: Rows, machine: int, resource: int, amount: int) -> bool:
    """Whether so much of a resource is free on a machine."""
    machines, supplies = machines_in(store), supplies_in(store)
    for at in range(machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]):
        if supplies[at, RESOURCE] == resource:
            amount -= max(0, supplies[at, FREE])
        if amount <= 0:
            return True
    return False


@compiled
def take(nodes: Rows, cards: Rows, row: int, need: Rows, mask: int, store: Rows, units: Rows) -> bool:
    """Take what a container needs of one resource, its zones first. Whether it was too little."""
    machines, machine, resource, amount = machines_in(store), nodes[row, MACHINE], need[NEEDED], need[AMOUNT]
    supplies = supplies_in(store)[machines[machine, FIRST_SUPPLY] : machines[machine, AFTER_SUPPLIES]]
    short = resource == CARDS and _take_cards(nodes, cards, row, amount, mask, store, units)
    if resource == CARDS and not machines[machine, CARDS_COUNTED]:
        return short
    if resource == CARDS and verdict_in(store)[ONLY_CARDS]:
        return bool(short or not is_left(store, machine, CARDS, amount))
    taken = taken_in(store)
    if resource == CPUS and supplies[0, RESOURCE] == CPUS and supplies[0, CORE] >= 0:
        return take_cpus(supplies, amount, mask, taken, machines[machine, KUBELET] < 0)
    return bool(_take_supplies(supplies, resource, amount, mask, taken) or short)


@compiled
def _comes(preference: int, mark: int, zones: int, mask: int) -> bool:
    """Whether something is taken in this step: what it had before, then in its zones, in a known one, anywhere."""
    if preference == _REUSED:
        return mark == REUSABLE
    if mark != OPEN:
        return False
    return bool(mask == NIL or zones & mask) if preference == _NEAREST else bool(zones or preference == _ANYWHERE)


@compiled
def _take_cards(nodes: Rows, cards: Rows, row: int, amount: int, mask: int, store: Rows, units: Rows) -> bool:
    """Take cards step by step. Whether they are too few.

    Of more than are needed in a step a kubelet takes the lowest; Ullage those that are joined best and break least.
    """
    first, binds = nodes[row, FIRST_CARD], machines_in(store)[nodes[row, MACHINE], KUBELET] < 0
    by_index, may = by_index_in(store)[first : first + len(units)], spare_in(store)[0, : len(units)]
    for preference in range(_PREFERENCES):
        if amount <= 0:
            break
        some = 0
        for k in range(len(units)):
            zones = cards[first + k, ZONES]
            may[k] = _comes(preference, units[k], zones, mask) and (zones != 0 or preference != _NEAREST or not binds)
            some += may[k]
        if binds and some > amount:
            pick(nodes, cards, row, nodes[:0], may, store, amount, 0)
        for k in by_index:
            if amount > 0 and may[k]:
                units[k] = HELD
                amount -= 1
    return bool(amount > 0)


@step(PICK)
def pick(nodes: Rows, _: Rows, row: int, __: Rows, may: Rows, store: Rows, count: int, ___: int) -> int:
    """Leave so many of the units of a node that may be taken (1) as go together best; there are enough."""
    chosen = spare_in(store)[1, :count]
    pick_linked(links_in(store), nodes, row, may, may[:0], chosen)
    may[:] = 0
    for card in chosen:
        may[card - nodes[row, FIRST_CARD]] = 1
    return 0


@compiled
def _take_supplies(supplies: Rows, resource: int, amount: int, mask: int, taken: Rows) -> bool:
    """Take devices, or amounts of zones, in the same steps."""
    for preference in range(_PREFERENCES):
        for at in range(len(supplies)):
            if supplies[at, RESOURCE] != resource or amount <= 0:
                continue
            zones = supplies[at, SUPPLY_ZONES]
            if in_bytes(supplies[at, TOTAL], supplies[at, CORE]):
                left = max(0, supplies[at, FREE] - taken[at, BYTES])
                some = min(amount, left) if _comes(preference, OPEN, zones, mask) else 0
                taken[at, BYTES] += some
                amount -= some
            elif _comes(preference, taken[at, MARK], zones, mask):
                taken[at, MARK] = HELD
                amount -= 1
    return bool(amount > 0)


@compiled
def give_back(units: Rows, taken: Rows, had: Rows, before: Rows) -> None:
    """What a finished init container took, the next ones may have; not what sidecars held before it."""
    for k in range(len(units)):
        if units[k] == HELD != had[k]:
            units[k] = REUSABLE
    for at in range(len(taken)):
        if taken[at, MARK] == HELD != before[at, MARK]:
            taken[at, MARK] = REUSABLE
        taken[at, PEAK] = max(taken[at, PEAK], taken[at, BYTES])
        taken[at, BYTES] = before[at, BYTES]


@compiled
def spend(machines: Rows, supplies: Rows, machine: int, taken: Rows, sign: int) -> None:
    """Take (1) what was decided from the supplies of a machine, or give it back (-1)."""
    if machine < 0:
        return
    first = machines[machine, FIRST_SUPPLY]
    for at in range(first, machines[machine, AFTER_SUPPLIES]):
        own = taken[at - first]
        supplies[at, FREE] -= sign * ((own[MARK] >= HELD) + max(own[BYTES], own[PEAK]))


@compiled
def tell(store: Rows, machine: int) -> None:
    """Leave in the board what was decided to be taken of the supplies of a machine, as a line."""
    machines, supplies, taken, told = machines_in(store), supplies_in(store), taken_in(store), told_in(store)
    zones = cpus = others = 0
    first = machines[machine, FIRST_SUPPLY]
    for at in range(first, machines[machine, AFTER_SUPPLIES]):
        own = taken[at - first]
        amount = max(own[BYTES], own[PEAK])
        if own[MARK] < HELD and not amount:
            continue
        zones |= supplies[at, SUPPLY_ZONES]
        if supplies[at, RESOURCE] == CPUS and not amount:
            told[FIRST_TOLD + cpus] = supplies[at, ID]
            cpus += 1
        else:
            to = FIRST_TOLD + cpus + others * TOLD_COLUMNS
            told[to], told[to + 1], told[to + 2], told[to + 3] = (
                at - first,
                supplies[at, RESOURCE],
                supplies[at, ID],
                amount,
            )
            others += 1
    told[TOLD_ZONES], told[TOLD_CPUS], told[TOLD_OTHERS] = zones, cpus, others
