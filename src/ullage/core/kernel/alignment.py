"""Which cards and CPUs of a node a request takes so that they lie in the same zones, or that it may not.

The containers of a request are aligned one after the other, as the kubelet does: hints for each resource
(how many zones hold as much), their merge, the verdict of the policy, and what is taken by it. Where a
kubelet decides, its rules predict it: widths by what a machine has in all, lowest indices first. Where
Ullage binds, widths go by what is free, and ties go to where they do least damage.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    ALIGNED,
    ALONE,
    AMOUNT,
    BESIDE,
    BROKEN_CORES,
    BYTES,
    CARDS,
    CARDS_COUNTED,
    CLAIM,
    CLOSENESS,
    CODE,
    CONTAINER,
    CONTAINER_OF,
    CPUS,
    FIRST_DISTANCE,
    FIRST_SUPPLY,
    FREE,
    HELD,
    INIT,
    KNOWN,
    KUBELET,
    MARK,
    MERGED,
    NEAR,
    NEEDED,
    NOT_ALIGNED,
    ONLY_CARDS,
    OPEN,
    OUT_OF_REACH,
    OWN_PICK,
    PEAK,
    POD_SCOPE,
    RESOURCE,
    SCALE,
    SCOPE,
    SHORT,
    SPAN,
    STAGE,
    TOO_MANY,
    UNKNOWN,
    WEAKER,
    WIDEST,
    ZONE_COUNT,
    counts_in,
    distances_in,
    machines_in,
    supplies_in,
    taken_in,
    verdict_in,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import COUNT, FIRST_CARD, MACHINE, NAMED, NEEDS, POLICY, WHOLE, ZONES, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.compiling.steps import ALIGN, step
from ullage.core.kernel.compiling.uncounted import part
from ullage.core.kernel.hints import free_cards, hint_of, is_handed_out
from ullage.core.kernel.masks import MOST_ZONES, NIL, NONE, RESTRICTED, width_of
from ullage.core.kernel.pairs import BOUND, hint_nearby, level_of, merge_by_pairs
from ullage.core.kernel.taking import give_back, is_left, may_take_cpus, open_supplies, spend, take, tell

BEFORE_ALL = float(2**32)
"""Of a score: one part in a hundred of closeness goes before all that strategies say."""

_COUNTS = 3
"""Counts by mask for one resource: in all, free, given back."""


@compiled
def settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows) -> bool:
    """Whether a request may have cards of a node, which has enough, as zones are; `units` keeps those it then has.

    Of whole cards these are as many as it asks for; of others, those that lie in the zones it was aligned to.
    All it could have, where nobody asks for alignment and the strategy picks by itself. What it takes beside
    cards is left in the board.
    """
    if not _settle(nodes, cards, row, shape, units, store, False):
        return False
    if verdict_in(store)[KNOWN]:
        tell(store, nodes[row, MACHINE])
    return True


@compiled
def may_settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows) -> bool:
    """The same answer sooner, and how near all would be: what it takes beside cards is picked only if that matters."""
    behind = len(shape) - shape[0, NAMED]
    first = behind - shape[0, NEEDS]
    return _settle(nodes, cards, row, shape, units, store, shape[first, CONTAINER] + 1 >= shape[behind - 1, CONTAINER])


@compiled
def _settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, only_cards: bool) -> bool:
    behind = len(shape) - shape[0, NAMED]
    first = behind - shape[0, NEEDS]
    whole, asked, verdict = shape[0, WHOLE] or shape[first, ALONE], shape[0, COUNT], verdict_in(store)
    for k in range(len(units)):
        units[k] = OPEN if units[k] > 0 else OUT_OF_REACH
    _align_enough(nodes, cards, row, shape[first:behind], units, store, shape[0, POLICY], only_cards)
    if verdict[CODE] != ALIGNED:
        units[:] = 0
        return False
    if not verdict[KNOWN]:
        return True
    mask, near = verdict[NEAR], 0
    unasked = shape[0, POLICY] <= NONE and machines_in(store)[nodes[row, MACHINE], KUBELET] < 0
    if unasked and shape[first, OWN_PICK]:
        for k in range(len(units)):
            units[k] = units[k] != OUT_OF_REACH
        return True
    for k in range(len(units)):
        near += units[k] != 0 and (cards[nodes[row, FIRST_CARD] + k, ZONES] & mask) != 0
    for k in range(len(units)):
        if whole or mask < 0:
            units[k] = units[k] >= HELD
        elif near >= asked:
            units[k] = units[k] != 0 and (cards[nodes[row, FIRST_CARD] + k, ZONES] & mask) != 0
        else:
            units[k] = units[k] != 0
    return True


@compiled
def _align_enough(
    nodes: Rows, cards: Rows, row: int, needs: Rows, units: Rows, store: Rows, policy: int, only_cards: int
) -> None:
    """Align with only cards picked, if that is enough to know how near all lies, or that does not count."""
    align(nodes, cards, row, needs, units, store, policy, only_cards)
    verdict = verdict_in(store)
    if verdict[CODE] == ALIGNED and verdict[BESIDE] < 0 and verdict[CLAIM] and (policy > NONE or needs[0, CLOSENESS]):
        for k in range(len(units)):
            units[k] = OPEN if units[k] != OUT_OF_REACH else OUT_OF_REACH
        align(nodes, cards, row, needs, units, store, policy, 0)


@compiled
def aligned_room(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, room: int) -> int:
    """How many of the `room` units that a node has beside zones may be there, each with those before it taken.

    `units` says how many shares each card has room for. Of parts of several cards no way to place them has more.
    """
    machines, supplies, machine = machines_in(store), supplies_in(store), nodes[row, MACHINE]
    begin, end = (machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]) if machine >= 0 else (0, 0)
    free, left, there = supplies[begin:end, FREE].copy(), units.copy(), 0
    alone = shape[0, WHOLE] or shape[len(shape) - shape[0, NAMED] - shape[0, NEEDS], ALONE]
    parts = shape[0, COUNT] and not alone
    while there < room:
        for k in range(len(units)):
            units[k] = left[k] > 0
        if not settle(nodes, cards, row, shape, units, store):
            break
        if not verdict_in(store)[KNOWN] or (parts and _only_cards(store, end - begin)):
            there = room
            break
        there += 1
        spend(machines, supplies, machine, taken_in(store), 1)
        _share_out(left, units, shape[0, COUNT])
    supplies[begin:end, FREE] = free
    return there


@compiled
def _only_cards(store: Rows, supplies: int) -> bool:
    """Whether a decision takes nothing but cards, in any zone."""
    taken = taken_in(store)
    for own in taken[:supplies]:
        if own[MARK] >= HELD or own[BYTES] or own[PEAK]:
            return False
    return bool(verdict_in(store)[NEAR] == NIL)


@compiled
def _share_out(left: Rows, units: Rows, count: int) -> None:
    """A unit takes a share of `count` of these cards, of those that have most."""
    for _ in range(count):
        most = -1
        for k in range(len(units)):
            if units[k] and (most < 0 or left[k] > left[most]):
                most = k
        units[most] = 0
        left[most] -= 1


@compiled
def closeness_of(shape: Rows, verdict: Rows) -> float:
    """What the zones of a decision add to the score of its node: how near they are, of 100, times the weight.

    That is 100 over their number or, where it is relative, what this is less than that of the widest candidate, in
    hundredths. Where alignment is asked for it goes before anything else. Zones that are not known, or a node that
    aligns less strictly than asked, are behind all.
    """
    first = len(shape) - shape[0, NAMED] - shape[0, NEEDS]
    weight, widest = shape[first, CLOSENESS] / SCALE, shape[first, WIDEST] - 1
    if widest < 0:
        near = 100 // max(1, verdict[SPAN]) if verdict[CLAIM] else 0
    else:
        near = 100 - 100 * verdict[SPAN] // max(1, widest) if verdict[CLAIM] else -1
    return float(near * max(weight, BEFORE_ALL if shape[0, POLICY] > NONE else 0.0))


@step(ALIGN)
def align(
    nodes: Rows, cards: Rows, row: int, needs: Rows, units: Rows, store: Rows, policy: int, only_cards: int
) -> int:
    """Decide over a request by its needs, its policy (-1: as the node says), and whether only cards are picked.

    `units` says which cards it could have (0 or `OPEN`) and is turned into which it takes (`HELD`; init
    containers leave `REUSABLE` ones, which are its own too). The verdict is left in the store. With only cards,
    for a request of one container, nothing else is picked.
    """
    _align(nodes, cards, row, policy, needs, store, units, only_cards)
    return 0


@compiled
def _align(
    nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, store: Rows, units: Rows, only_cards: int
) -> None:
    machines, verdict = machines_in(store), verdict_in(store)
    machine = nodes[row, MACHINE]
    verdict[:] = 0
    verdict[ONLY_CARDS] = only_cards
    by = _policy_there(machines, machine, policy, level_of(needs) == BOUND, verdict)
    if verdict[CODE] != ALIGNED or machine < 0 or machines[machine, ZONE_COUNT] > MOST_ZONES:
        return
    verdict[KNOWN], verdict[CLAIM] = 1, by >= policy and machines[machine, ZONE_COUNT] > 0
    if not only_cards:
        open_supplies(store, machine)
    alone, mask = len(needs), NIL
    while alone and needs[alone - 1, SCOPE]:
        alone -= 1
    as_one = machines[machine, KUBELET] >= 0 and machines[machine, POD_SCOPE] and alone < len(needs)
    if as_one:
        mask = _merged(nodes, cards, row, by, needs[alone:], store, units)
    begin = 0
    while begin < alone and verdict[CODE] == ALIGNED:
        end = begin + 1
        while end < alone and needs[end, CONTAINER] == needs[begin, CONTAINER]:
            end += 1
        if not as_one:
            mask = _merged(nodes, cards, row, by, needs[begin:end], store, units)
        if verdict[CODE] == ALIGNED:
            _start(nodes, cards, row, by, needs[begin:end], mask, store, units)
        begin = end
    _measure(nodes, cards, row, store, units)


@compiled
def _policy_there(machines: Rows, machine: int, asked: int, bound: bool, verdict: Rows) -> int:
    """The policy that a request meets on a machine, or why it cannot go there whatever is free.

    One that is `bound` by a pair needs zones that are known, and a kubelet that keeps to masks.
    """
    least = max(asked, RESTRICTED) if bound else asked
    if machine < 0 or machines[machine, ZONE_COUNT] == 0:
        verdict[CODE] = UNKNOWN if least >= RESTRICTED else ALIGNED
        return NONE
    there = machines[machine, KUBELET]
    if least >= RESTRICTED and 0 <= there < least:
        verdict[CODE] = WEAKER
    by = there if there >= 0 else max(asked, NONE)
    if max(by, least) >= RESTRICTED and machines[machine, ZONE_COUNT] > MOST_ZONES:
        verdict[CODE] = TOO_MANY
    return int(by)


@compiled
def _merged(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, store: Rows, units: Rows) -> int:
    """The mask that a container, or a pod as one, is aligned by; the verdict says so if its policy refuses it."""
    machine, verdict, machines, room = nodes[row, MACHINE], verdict_in(store), machines_in(store), counts_in(store)
    if policy <= NONE:
        return NIL
    size = len(needs) + _COUNTS, 1 << machines[machine, ZONE_COUNT]
    masks = size[1]
    work = part(room, 0, size) if size[0] * masks <= len(room) else np.zeros(size, np.int64)
    hints, counts = work[_COUNTS:], work[:_COUNTS]
    for k in range(len(needs)):
        if needs[k, AMOUNT]:
            hint_of(nodes, cards, row, policy, needs[k], store, units, hints[k], counts)
        else:
            hint_nearby(store, machine, needs[k, NEEDED], hints[k])
    binds = machines[machine, KUBELET] < 0
    damage, distances = counts[0, : masks if binds else 0], distances_of(store, machine)
    if len(damage):
        free_cards(nodes, cards, row, units, damage)
    mask, admitted = merge_by_pairs(needs, hints, policy, distances, damage, binds)
    verdict[MERGED], verdict[CONTAINER_OF] = mask, needs[0, CONTAINER]
    if not admitted:
        verdict[CODE] = NOT_ALIGNED
    return int(mask)


@compiled
def _start(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, mask: int, store: Rows, units: Rows) -> None:
    """Let a container have what it needs, which an init container gives back to its pod."""
    verdict = verdict_in(store)
    if needs[0, STAGE] != INIT:
        verdict[CODE] = _take_all(nodes, cards, row, policy, needs, mask, store, units)
    else:
        taken = taken_in(store)
        had, before = units.copy(), taken.copy()
        verdict[CODE] = _take_all(nodes, cards, row, policy, needs, mask, store, units)
        give_back(units, taken, had, before)
    if verdict[CODE] != ALIGNED:
        verdict[CONTAINER_OF] = needs[0, CONTAINER]


@compiled
def _take_all(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, mask: int, store: Rows, units: Rows) -> int:
    """Take what a container needs. `ALIGNED`, or why it may not have it."""
    machine, verdict = nodes[row, MACHINE], verdict_in(store)
    for k in range(len(needs)):
        resource, amount = needs[k, NEEDED], needs[k, AMOUNT]
        if resource == CARDS:
            verdict[NEAR] = mask if verdict[NEAR] == NIL else -1
        if not amount or not is_handed_out(store, machine, policy, resource):
            continue
        if resource == CPUS and not may_take_cpus(store, machine, amount):
            return BROKEN_CORES
        if verdict[ONLY_CARDS] and resource != CARDS:
            short = not is_left(store, machine, resource, amount)
        else:
            short = take(nodes, cards, row, needs[k], mask, store, units)
        if verdict[ONLY_CARDS] and (resource != CARDS or machines_in(store)[machine, CARDS_COUNTED]):
            verdict[BESIDE] |= _zones_beside(store, machine, needs[k], mask)
        if short:
            return SHORT
    return ALIGNED


@compiled
def _zones_beside(store: Rows, machine: int, need: Rows, mask: int) -> int:
    """The zones among which a need beside cards will lie: those of the mask; -1 if they show only when it is picked."""
    machines, supplies, left = machines_in(store), supplies_in(store), 0
    if machines[machine, ZONE_COUNT] == 1:
        return 1
    for at in range(machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]):
        zones = supplies[at, SUPPLY_ZONES]
        if supplies[at, RESOURCE] == need[NEEDED] and supplies[at, FREE] > 0 and zones & mask:
            if zones & ~mask:
                return -1
            left += supplies[at, FREE]
    return mask if left >= need[AMOUNT] else -1


@compiled
def distances_of(store: Rows, machine: int) -> Rows:
    """The distances that its masks are compared by, if they are."""
    machines, distances = machines_in(store), distances_in(store)
    first, zones = machines[machine, FIRST_DISTANCE], machines[machine, ZONE_COUNT]
    return distances[first : first + zones, :zones] if first >= 0 else distances[:0, :0]


@compiled
def _measure(nodes: Rows, cards: Rows, row: int, store: Rows, units: Rows) -> None:
    """In how many zones all lies that was taken, and whether that is known; on one zone nothing can lie apart."""
    machines, supplies, taken, verdict = machines_in(store), supplies_in(store), taken_in(store), verdict_in(store)
    machine, union, unknown = nodes[row, MACHINE], 0, False
    for k in range(len(units)):
        if units[k] >= HELD:
            zones = cards[nodes[row, FIRST_CARD] + k, ZONES]
            union |= zones
            unknown |= zones == 0 and not machines[machine, CARDS_COUNTED]
    beside = verdict[BESIDE]
    if beside > 0:
        verdict[BESIDE] = beside if width_of(beside) == 1 or beside & ~union == 0 else -1
        union |= beside
    first = machines[machine, FIRST_SUPPLY]
    for at in range(first, first if verdict[ONLY_CARDS] else machines[machine, AFTER_SUPPLIES]):
        own = taken[at - first]
        if own[MARK] >= HELD or max(own[BYTES], own[PEAK]) > 0:
            union |= supplies[at, SUPPLY_ZONES]
            unknown |= supplies[at, SUPPLY_ZONES] == 0
    verdict[SPAN] = width_of(union)
    if unknown and machines[machine, ZONE_COUNT] > 1:
        verdict[CLAIM] = 0
