"""Which cards and CPUs of a node a request takes so that they lie in the same zones, or why it is refused.

The containers of a request are aligned one after the other, as the kubelet does: hints for each resource, their
merge, the verdict of the policy, and what is taken by it. Where a kubelet decides, its rules predict it: widths
follow from what a machine has in all, and lowest indices come first. Where Ullage binds, widths follow from what is
free, and ties go to the zones where they do least damage.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import (
    counts_in,
    distances_in,
    links_in,
    machines_in,
    supplies_in,
    taken_in,
    verdict_in,
)
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.compiling.steps import ALIGN, step
from ullage.core.kernel.compiling.uncounted import part
from ullage.core.kernel.hints import Counts, free_cards, hint_of, is_allocated_exclusively
from ullage.core.kernel.links import islands_of, keep_behind_switch, keep_worst_connected, links_matter, mean_weight
from ullage.core.kernel.masks import MOST_ZONES, NIL, NONE, RESTRICTED, width_of
from ullage.core.kernel.nearest import MOST_RESOURCES
from ullage.core.kernel.pairs import BOUND, hint_nearby, level_of, merge_by_pairs
from ullage.core.kernel.site import MachineRow, Site, site_of, supplies_of
from ullage.core.kernel.taking import (
    hold_supplies,
    is_free,
    list_supplies,
    may_take_cpus,
    open_supplies,
    return_to_pod,
    take,
)

BEFORE_ALL = float(2**32)
"""Of a score: one part in a hundred of closeness counts more than any score of a strategy."""

_MOST_WEIGHT = 4096
"""Above the mean weight of any pairs that is distinguished."""

_COUNTS = 3
"""Rows of `Counts`."""


@inlined
def first_need(shape: Rows) -> int:
    """Return the row of a shape with its first need; it has one."""
    return int(len(shape) - shape[0, c.NAMED] - shape[0, c.NEEDS])


@compiled
def choose_aligned(nodes: Rows, cards: Rows, row: int, shape: Rows, marks: Rows, arena: Rows) -> bool:
    """Decide whether a request may have cards of a node, as far as zones go; mark the cards that it may have.

    Before, `marks` is above 0 for each card that takes a share, and these are enough. Afterwards it is above 0 for
    the cards that are chosen: as many whole cards as requested; all cards in the zones that parts are aligned to (of
    these the best connected ones, if the request asks for them); all cards, if no alignment is asked for and the
    strategy picks. The supplies that are taken are left in the arena.
    """
    if not _choose(nodes, cards, row, shape, marks, arena, False):
        return False
    if verdict_in(arena)[b.KNOWN]:
        list_supplies(MachineRow(nodes[row, c.MACHINE], arena))
    return True


@compiled
def may_align(nodes: Rows, cards: Rows, row: int, shape: Rows, marks: Rows, arena: Rows) -> bool:
    """Return the same answer sooner, with the closeness; supplies are picked only if the answer depends on them."""
    after, first = len(shape) - shape[0, c.NAMED], first_need(shape)
    one_container = shape[first, b.CONTAINER] + 1 >= shape[after - 1, b.CONTAINER]
    return _choose(nodes, cards, row, shape, marks, arena, one_container)


@compiled
def _choose(nodes: Rows, cards: Rows, row: int, shape: Rows, marks: Rows, arena: Rows, only_cards: bool) -> bool:
    first, policy, verdict = first_need(shape), shape[0, c.POLICY], verdict_in(arena)
    whole = shape[0, c.WHOLE] or shape[first, b.ALONE]
    for k in range(len(marks)):
        marks[k] = b.OPEN if marks[k] > 0 else b.OUT_OF_REACH
    needs = shape[first : len(shape) - shape[0, c.NAMED]]
    align(nodes, cards, row, needs, marks, arena, policy, only_cards)
    if _depends_on_supplies(verdict, policy > NONE or needs[0, b.CLOSENESS] != 0):
        for k in range(len(marks)):
            marks[k] = b.OPEN if marks[k] != b.OUT_OF_REACH else b.OUT_OF_REACH
        align(nodes, cards, row, needs, marks, arena, policy, 0)
    if verdict[b.CODE] != b.ALIGNED:
        marks[:] = 0
        return False
    if not verdict[b.KNOWN]:
        return True
    unasked = policy <= NONE and machines_in(arena)[nodes[row, c.MACHINE], b.KUBELET] < 0
    named = machines_in(arena)[nodes[row, c.MACHINE], b.PICKER] == b.NAMED
    demand = shape[first, b.CONNECT] if named else 0
    one_set = demand == b.ONE_ISLAND or (demand == b.BEST_LINKS and links_matter(links_in(arena), nodes, row, marks))
    if unasked and shape[first, b.OWN_PICK] and not demand:
        _keep_marked(marks, b.OPEN)
    elif whole or verdict[b.NEAR] < 0 or (one_set and shape[0, c.COUNT] > 1):
        _keep_marked(marks, b.HELD)
    else:
        _mark_parts(cards, nodes[row, c.FIRST_CARD], marks, verdict[b.NEAR], shape[0, c.COUNT])
        if one_set and demand == b.BEST_LINKS:
            keep_worst_connected(links_in(arena), nodes, row, marks)
    return True


@inlined
def _keep_marked(marks: Rows, least: int) -> None:
    """Mark only the cards that are marked with at least this number."""
    for k in range(len(marks)):
        marks[k] = marks[k] >= least


@compiled
def _mark_parts(cards: Rows, first_card: int, marks: Rows, mask: int, count: int) -> None:
    """Mark the cards in a mask if they are enough, else all that could be had."""
    near = 0
    for k in range(len(marks)):
        near += marks[k] != 0 and (cards[first_card + k, c.ZONES] & mask) != 0
    for k in range(len(marks)):
        inside = near < count or (cards[first_card + k, c.ZONES] & mask) != 0
        marks[k] = marks[k] != 0 and inside


@inlined
def _depends_on_supplies(verdict: Rows, closeness_counts: bool) -> bool:
    """Return whether a decision with only cards picked leaves open how near all lies, and that counts."""
    aligned = verdict[b.CODE] == b.ALIGNED and verdict[b.PROVEN] != 0
    return bool(aligned and verdict[b.SUPPLY_ZONES] < 0 and closeness_counts)


@compiled
def aligned_units(nodes: Rows, cards: Rows, row: int, shape: Rows, shares: Rows, arena: Rows, most: int) -> int:
    """Return how many of the `most` units that a node has room for zones admit, each after those before it.

    `shares` is the number of shares that each card has room for. For parts of several cards it is an upper bound.
    """
    machine = MachineRow(nodes[row, c.MACHINE], arena)
    first, after = supplies_of(machine)
    free, left, units = supplies_in(arena)[first:after, b.FREE].copy(), shares.copy(), 0
    alone = shape[0, c.WHOLE] or shape[first_need(shape), b.ALONE]
    parts = shape[0, c.COUNT] and not alone
    while units < most:
        for k in range(len(shares)):
            shares[k] = left[k] > 0
        if not choose_aligned(nodes, cards, row, shape, shares, arena):
            break
        if not verdict_in(arena)[b.KNOWN] or (parts and _takes_no_supplies(arena, after - first)):
            units = most
            break
        units += 1
        hold_supplies(machine, 1)
        _share_out(left, shares, shape[0, c.COUNT])
    supplies_in(arena)[first:after, b.FREE] = free
    return units


@compiled
def _takes_no_supplies(arena: Rows, supplies: int) -> bool:
    """Return whether a decision takes nothing but cards, in any zone."""
    for taken in taken_in(arena)[:supplies]:
        if taken[b.STATUS] >= b.HELD or taken[b.BYTES] or taken[b.PEAK]:
            return False
    return bool(verdict_in(arena)[b.NEAR] == NIL)


@compiled
def _share_out(left: Rows, chosen: Rows, count: int) -> None:
    """Take a share of `count` of the chosen cards, of those that have most left."""
    for _ in range(count):
        most = -1
        for k in range(len(chosen)):
            if chosen[k] and (most < 0 or left[k] > left[most]):
                most = k
        chosen[most] = 0
        left[most] -= 1


@compiled
def closeness_of(shape: Rows, verdict: Rows) -> float:
    """Return what the zones of a decision add to the score of its node: the closeness, 0 to 100, times its weight.

    The closeness is 100 over the number of zones. Where it is relative, it is the part of 100 by which the number
    is below that of the widest candidate. If alignment is requested, it counts more than any score. A node whose
    zones are unknown, or that aligns less strictly than requested, has the lowest closeness. The mean weight of the
    pairs of its cards adds less than one: links decide between nodes of the same closeness.
    """
    first, proven, span = first_need(shape), verdict[b.PROVEN], verdict[b.SPAN]
    weight, widest = shape[first, b.CLOSENESS] / b.SCALE, shape[first, b.WIDEST] - 1
    if widest < 0:
        near = 100 // max(1, span) if proven else 0
    else:
        near = 100 - 100 * span // max(1, widest) if proven else -1
    found = near * max(weight, BEFORE_ALL if shape[0, c.POLICY] > NONE else 0.0)
    best = shape[first, b.CONNECT] == b.BEST_LINKS
    if shape[first, b.ALONE] or best:
        found += min(verdict[b.LINKED], _MOST_WEIGHT - 1) / _MOST_WEIGHT * max(weight, BEFORE_ALL if best else 0.0)
    return float(found)


@step(ALIGN)
def align(
    nodes: Rows, cards: Rows, row: int, needs: Rows, marks: Rows, arena: Rows, policy: int, only_cards: int
) -> int:
    """Align a request by its needs under a policy (-1: as the node says), and leave the verdict in the arena.

    `marks` is `OPEN` for the cards that it could have, else 0. Those that it takes become `HELD`, or `REUSABLE` if
    an init container returned them. With `only_cards`, for a request of one container, no supplies are picked.
    """
    site, verdict = site_of(nodes, cards, row, arena), verdict_in(arena)
    verdict[:] = 0
    verdict[b.ONLY_CARDS] = only_cards
    machine = site.machine
    there = _policy_there(machine, policy, level_of(needs) == BOUND)
    zones = machines_in(arena)[machine.row, b.ZONE_COUNT] if machine.row >= 0 else 0
    if verdict[b.CODE] == b.ALIGNED and machine.row >= 0 and not _has_devices_beside(site, needs, marks):
        verdict[b.CODE] = b.OFF_SWITCH
    if verdict[b.CODE] == b.ALIGNED and machine.row >= 0 and zones <= MOST_ZONES:
        verdict[b.KNOWN], verdict[b.PROVEN] = 1, there >= policy and zones > 0
        if not only_cards:
            open_supplies(machine)
        _align_containers(site, there, needs, marks)
        _measure(site, marks)
    if needs[0, b.CONNECT] == b.ONE_ISLAND and verdict[b.CODE] == b.ALIGNED and not _is_one_island(site, marks):
        verdict[b.CODE] = b.APART
    return 0


@compiled
def _has_devices_beside(site: Site, needs: Rows, marks: Rows) -> bool:
    """Return whether enough cards are behind a switch with the devices that pairs name; unmark the others.

    Where a device plugin picks, it may take any card: then all have to be.
    """
    resources = count = 0
    for k in range(len(needs)):
        if needs[k, b.ON_SWITCH]:
            if needs[k, b.NEEDED] >= MOST_RESOURCES:
                return False
            resources |= 1 << needs[k, b.NEEDED]
        if needs[k, b.SCOPE] and needs[k, b.NEEDED] == b.CARDS:
            count = needs[k, b.AMOUNT]
    if resources == 0:
        return True
    stay, gone = keep_behind_switch(links_in(site.machine.arena), site.nodes, site.row, marks, resources)
    named = machines_in(site.machine.arena)[site.machine.row, b.PICKER] == b.NAMED
    return bool(stay >= count and (named or gone == 0))


@compiled
def _is_one_island(site: Site, marks: Rows) -> bool:
    """Return whether a request gets cards of one island: those that it takes, or whichever the plugin there takes."""
    if not verdict_in(site.machine.arena)[b.KNOWN]:
        return False
    named = machines_in(site.machine.arena)[site.machine.row, b.PICKER] == b.NAMED
    return islands_of(links_in(site.machine.arena), site.nodes, site.row, marks, b.HELD if named else b.OPEN) <= 1


@inlined
def _policy_there(machine: MachineRow, requested: int, bound: bool) -> int:
    """Return the policy that applies to a request on a node; the verdict says if the node can never take it.

    A request `bound` by a pair needs known zones, and a kubelet that keeps to masks.
    """
    row, verdict = machine.row, verdict_in(machine.arena)
    least = max(requested, RESTRICTED) if bound else requested
    zones = machines_in(machine.arena)[row, b.ZONE_COUNT] if row >= 0 else 0
    if zones == 0:
        verdict[b.CODE] = b.UNKNOWN if least >= RESTRICTED else b.ALIGNED
        return NONE
    kubelet = machines_in(machine.arena)[row, b.KUBELET]
    if least >= RESTRICTED and 0 <= kubelet < least:
        verdict[b.CODE] = b.WEAKER
    policy = kubelet if kubelet >= 0 else max(requested, NONE)
    if max(policy, least) >= RESTRICTED and zones > MOST_ZONES:
        verdict[b.CODE] = b.TOO_MANY
    return int(policy)


@compiled
def _align_containers(site: Site, policy: int, needs: Rows, marks: Rows) -> None:
    """Align one container after the other; all by one mask where a kubelet aligns a pod as one."""
    arena = site.machine.arena
    machines, verdict = machines_in(arena), verdict_in(arena)
    after, mask = len(needs), NIL
    while after and needs[after - 1, b.SCOPE]:
        after -= 1
    as_one = (
        machines[site.machine.row, b.KUBELET] >= 0 and machines[site.machine.row, b.POD_SCOPE] and after < len(needs)
    )
    if as_one:
        mask = _merged(site, policy, needs[after:], marks)
    begin = 0
    while begin < after and verdict[b.CODE] == b.ALIGNED:
        end = begin + 1
        while end < after and needs[end, b.CONTAINER] == needs[begin, b.CONTAINER]:
            end += 1
        if not as_one:
            mask = _merged(site, policy, needs[begin:end], marks)
        if verdict[b.CODE] == b.ALIGNED:
            _start(site, policy, needs[begin:end], mask, marks)
        begin = end


@compiled
def _merged(site: Site, policy: int, needs: Rows, marks: Rows) -> int:
    """Return the mask that a container, or a pod as one, is aligned by; the verdict says if its policy refuses it."""
    arena = site.machine.arena
    verdict, machines, scratch = (
        verdict_in(arena),
        machines_in(arena),
        counts_in(arena),
    )
    if policy <= NONE:
        return NIL
    rows, masks = len(needs) + _COUNTS, 1 << machines[site.machine.row, b.ZONE_COUNT]
    work = part(scratch, 0, (rows, masks)) if rows * masks <= len(scratch) else np.zeros((rows, masks), np.int64)
    hints, counts = work[_COUNTS:], Counts(work[0], work[1], work[2])
    for k in range(len(needs)):
        if needs[k, b.AMOUNT]:
            hint_of(site, policy, needs[k], marks, hints[k], counts)
        else:
            hint_nearby(site.machine, needs[k, b.NEEDED], hints[k])
    binds = machines[site.machine.row, b.KUBELET] < 0
    damage, distances = counts.total[: masks if binds else 0], distances_of(site.machine)
    if len(damage):
        free_cards(site, marks, damage)
    mask, admitted = merge_by_pairs(needs, hints, policy, distances, damage, binds)
    verdict[b.MERGED], verdict[b.CONTAINER_OF] = mask, needs[0, b.CONTAINER]
    if not admitted:
        verdict[b.CODE] = b.NOT_ALIGNED
    return int(mask)


@compiled
def _start(site: Site, policy: int, needs: Rows, mask: int, marks: Rows) -> None:
    """Take what a container needs. An init container returns it to its pod."""
    verdict = verdict_in(site.machine.arena)
    if needs[0, b.STAGE] != b.INIT:
        verdict[b.CODE] = _take_all(site, policy, needs, mask, marks)
    else:
        taken = taken_in(site.machine.arena)
        marks_before, taken_before = marks.copy(), taken.copy()
        verdict[b.CODE] = _take_all(site, policy, needs, mask, marks)
        return_to_pod(marks, taken, marks_before, taken_before)
    if verdict[b.CODE] != b.ALIGNED:
        verdict[b.CONTAINER_OF] = needs[0, b.CONTAINER]


@compiled
def _take_all(site: Site, policy: int, needs: Rows, mask: int, marks: Rows) -> int:
    """Take what a container needs. Return `ALIGNED`, or why it may not have it."""
    arena = site.machine.arena
    verdict = verdict_in(arena)
    for k in range(len(needs)):
        resource, amount = needs[k, b.NEEDED], needs[k, b.AMOUNT]
        if resource == b.CARDS:
            verdict[b.NEAR] = mask if verdict[b.NEAR] == NIL else -1
        if not amount or not is_allocated_exclusively(site.machine, policy, resource):
            continue
        if resource == b.CPUS and not may_take_cpus(site.machine, amount):
            return b.BROKEN_CORES
        if verdict[b.ONLY_CARDS] and resource != b.CARDS:
            short = not is_free(site.machine, resource, amount)
        else:
            short = take(site, needs[k], mask, marks)
        if verdict[b.ONLY_CARDS] and (resource != b.CARDS or machines_in(arena)[site.machine.row, b.CARDS_COUNTED]):
            verdict[b.SUPPLY_ZONES] |= _zones_of_need(site.machine, needs[k], mask)
        if short:
            return b.SHORT
    return b.ALIGNED


@compiled
def _zones_of_need(machine: MachineRow, need: Rows, mask: int) -> int:
    """Return the zones in which supplies for a need will lie: the mask; -1 if that depends on which are picked."""
    supplies, left = supplies_in(machine.arena), 0
    if machines_in(machine.arena)[machine.row, b.ZONE_COUNT] == 1:
        return 1
    first, after = supplies_of(machine)
    for at in range(first, after):
        zones = supplies[at, b.ZONES]
        if supplies[at, b.RESOURCE] == need[b.NEEDED] and supplies[at, b.FREE] > 0 and zones & mask:
            if zones & ~mask:
                return -1
            left += supplies[at, b.FREE]
    return mask if left >= need[b.AMOUNT] else -1


@compiled
def distances_of(machine: MachineRow) -> Rows:
    """Return the distances by which masks are compared on a machine; an empty table if they are not."""
    machines, distances = machines_in(machine.arena), distances_in(machine.arena)
    first, zones = machines[machine.row, b.FIRST_DISTANCE], machines[machine.row, b.ZONE_COUNT]
    return distances[first : first + zones, :zones] if first >= 0 else distances[:0, :0]


@compiled
def _measure(site: Site, marks: Rows) -> None:
    """Count the zones of all that was taken, and whether one is unknown; on one zone nothing can lie apart."""
    arena = site.machine.arena
    machines, verdict = machines_in(arena), verdict_in(arena)
    supplies, taken, cards = supplies_in(arena), taken_in(arena), site.cards
    counted, union, unknown = machines[site.machine.row, b.CARDS_COUNTED], 0, False
    for k in range(len(marks)):
        if marks[k] >= b.HELD:
            zones = cards[site.first_card + k, c.ZONES]
            union |= zones
            unknown |= zones == 0 and not counted
    others = verdict[b.SUPPLY_ZONES]
    if others > 0:
        verdict[b.SUPPLY_ZONES] = others if width_of(others) == 1 or others & ~union == 0 else -1
        union |= others
    first, after = supplies_of(site.machine)
    for at in range(first, first if verdict[b.ONLY_CARDS] else after):
        own = taken[at - first]
        if own[b.STATUS] >= b.HELD or max(own[b.BYTES], own[b.PEAK]) > 0:
            union |= supplies[at, b.ZONES]
            unknown |= supplies[at, b.ZONES] == 0
    verdict[b.SPAN] = width_of(union)
    verdict[b.LINKED] = mean_weight(links_in(arena), site.nodes, site.row, marks, b.HELD)
    if unknown and machines[site.machine.row, b.ZONE_COUNT] > 1:
        verdict[b.PROVEN] = 0
