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
    Board,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import COUNT, FIRST_CARD, MACHINE, NAMED, NEEDS, POLICY, WHOLE, ZONES, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.hints import free_cards, hint_of, is_handed_out
from ullage.core.kernel.masks import MOST_ZONES, NIL, NONE, RESTRICTED, width_of
from ullage.core.kernel.pairs import BOUND, hint_nearby, level_of, merge_by_pairs
from ullage.core.kernel.taking import give_back, is_left, may_take_cpus, open_supplies, spend, take, tell
from ullage.core.kernel.views import part

BEFORE_ALL = float(2**32)
"""Of a score: one part in a hundred of closeness goes before all that strategies say."""

_COUNTS = 3
"""Counts by mask for one resource: in all, free, given back."""


@compiled
def settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board) -> bool:
    """Whether a request may have cards of a node, which has enough, as zones are; `units` keeps those it then has.

    Of whole cards these are as many as it asks for; of others, those that lie in the zones it was aligned to.
    All it could have, where nobody asks for alignment and the strategy picks by itself. What it takes beside
    cards is left in the board.
    """
    if not _settle(nodes, cards, row, shape, units, board, False):
        return False
    if board.verdict[KNOWN]:
        tell(board, nodes[row, MACHINE])
    return True


@compiled
def may_settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board) -> bool:
    """The same answer sooner, and how near all would be: what it takes beside cards is picked only if that matters."""
    behind = len(shape) - shape[0, NAMED]
    first = behind - shape[0, NEEDS]
    return _settle(nodes, cards, row, shape, units, board, shape[first, CONTAINER] + 1 >= shape[behind - 1, CONTAINER])


@compiled
def _settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board, only_cards: bool) -> bool:
    behind = len(shape) - shape[0, NAMED]
    first = behind - shape[0, NEEDS]
    whole, asked, verdict = shape[0, WHOLE] or shape[first, ALONE], shape[0, COUNT], board.verdict
    for k in range(len(units)):
        units[k] = OPEN if units[k] > 0 else OUT_OF_REACH
    _align(nodes, cards, row, shape[0, POLICY], shape[first:behind], board, units, only_cards)
    if verdict[CODE] != ALIGNED:
        units[:] = 0
        return False
    if not verdict[KNOWN]:
        return True
    mask, near = verdict[NEAR], 0
    unasked = shape[0, POLICY] <= NONE and board.machines[nodes[row, MACHINE], KUBELET] < 0
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
def _align(
    nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, board: Board, units: Rows, only_cards: bool
) -> None:
    """Align with only cards picked, if that is enough to know how near all lies, or that does not count."""
    align(nodes, cards, row, policy, needs, board, units, only_cards)
    verdict = board.verdict
    if verdict[CODE] == ALIGNED and verdict[BESIDE] < 0 and verdict[CLAIM] and (policy > NONE or needs[0, CLOSENESS]):
        for k in range(len(units)):
            units[k] = OPEN if units[k] != OUT_OF_REACH else OUT_OF_REACH
        align(nodes, cards, row, policy, needs, board, units, False)


@compiled
def aligned_room(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board, room: int) -> int:
    """How many of the `room` units that a node has beside zones may be there, each with those before it taken.

    `units` says how many shares each card has room for. Of parts of several cards no way to place them has more.
    """
    machines, supplies, machine = board.machines, board.supplies, nodes[row, MACHINE]
    begin, end = (machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]) if machine >= 0 else (0, 0)
    free, left, there = supplies[begin:end, FREE].copy(), units.copy(), 0
    alone = shape[0, WHOLE] or shape[len(shape) - shape[0, NAMED] - shape[0, NEEDS], ALONE]
    parts = shape[0, COUNT] and not alone
    while there < room:
        for k in range(len(units)):
            units[k] = left[k] > 0
        if not settle(nodes, cards, row, shape, units, board):
            break
        if not board.verdict[KNOWN] or (parts and _only_cards(board, end - begin)):
            there = room
            break
        there += 1
        spend(machines, supplies, machine, board.taken, 1)
        _share_out(left, units, shape[0, COUNT])
    supplies[begin:end, FREE] = free
    return there


@compiled
def _only_cards(board: Board, supplies: int) -> bool:
    """Whether a decision takes nothing but cards, in any zone."""
    for own in board.taken[:supplies]:
        if own[MARK] >= HELD or own[BYTES] or own[PEAK]:
            return False
    return bool(board.verdict[NEAR] == NIL)


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


@compiled
def align(
    nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, board: Board, units: Rows, only_cards: bool
) -> None:
    """Decide over a request of this policy (-1: as the node says) on a node; the verdict is left in the board.

    `units` says which cards it could have (0 or `OPEN`) and is turned into which it takes (`HELD`; init
    containers leave `REUSABLE` ones, which are its own too). With `only_cards`, for a request of one container,
    nothing else is picked.
    """
    machines, taken, verdict = board.machines, board.taken, board.verdict
    machine = nodes[row, MACHINE]
    verdict[:] = 0
    verdict[ONLY_CARDS] = only_cards
    by = _policy_there(board, machine, policy, level_of(needs) == BOUND, verdict)
    if verdict[CODE] != ALIGNED or machine < 0 or machines[machine, ZONE_COUNT] > MOST_ZONES:
        return
    verdict[KNOWN], verdict[CLAIM] = 1, by >= policy and machines[machine, ZONE_COUNT] > 0
    if not only_cards:
        open_supplies(board, machine, taken)
    alone, mask = len(needs), NIL
    while alone and needs[alone - 1, SCOPE]:
        alone -= 1
    as_one = machines[machine, KUBELET] >= 0 and machines[machine, POD_SCOPE] and alone < len(needs)
    if as_one:
        mask = _merged(nodes, cards, row, by, needs[alone:], board, units)
    begin = 0
    while begin < alone and verdict[CODE] == ALIGNED:
        end = begin + 1
        while end < alone and needs[end, CONTAINER] == needs[begin, CONTAINER]:
            end += 1
        if not as_one:
            mask = _merged(nodes, cards, row, by, needs[begin:end], board, units)
        if verdict[CODE] == ALIGNED and needs[begin, STAGE] == INIT:
            _start_and_end(nodes, cards, row, by, needs[begin:end], mask, board, units)
        elif verdict[CODE] == ALIGNED:
            _start(nodes, cards, row, by, needs[begin:end], mask, board, units)
        begin = end
    _measure(nodes, cards, row, board, units, taken, verdict)


@compiled
def _policy_there(board: Board, machine: int, asked: int, bound: bool, verdict: Rows) -> int:
    """The policy that a request meets on a machine, or why it cannot go there whatever is free.

    One that is `bound` by a pair needs zones that are known, and a kubelet that keeps to masks.
    """
    least = max(asked, RESTRICTED) if bound else asked
    if machine < 0 or board.machines[machine, ZONE_COUNT] == 0:
        verdict[CODE] = UNKNOWN if least >= RESTRICTED else ALIGNED
        return NONE
    there = board.machines[machine, KUBELET]
    if least >= RESTRICTED and 0 <= there < least:
        verdict[CODE] = WEAKER
    by = there if there >= 0 else max(asked, NONE)
    if max(by, least) >= RESTRICTED and board.machines[machine, ZONE_COUNT] > MOST_ZONES:
        verdict[CODE] = TOO_MANY
    return int(by)


@compiled
def _merged(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, board: Board, units: Rows) -> int:
    """The mask that a container, or a pod as one, is aligned by; the verdict says so if its policy refuses it."""
    machine, verdict = nodes[row, MACHINE], board.verdict
    if policy <= NONE:
        return NIL
    size = len(needs) + _COUNTS, 1 << board.machines[machine, ZONE_COUNT]
    masks = size[1]
    work = part(board.counts, 0, size) if size[0] * masks <= len(board.counts) else np.zeros(size, np.int64)
    hints, counts = work[_COUNTS:], work[:_COUNTS]
    for k in range(len(needs)):
        if needs[k, AMOUNT]:
            hint_of(nodes, cards, row, policy, needs[k], board, units, hints[k], counts)
        else:
            hint_nearby(board, machine, needs[k, NEEDED], hints[k])
    binds = board.machines[machine, KUBELET] < 0
    damage, distances = counts[0, : masks if binds else 0], distances_of(board, machine)
    if len(damage):
        free_cards(nodes, cards, row, units, damage)
    mask, admitted = merge_by_pairs(needs, hints, policy, distances, damage, binds)
    verdict[MERGED], verdict[CONTAINER_OF] = mask, needs[0, CONTAINER]
    if not admitted:
        verdict[CODE] = NOT_ALIGNED
    return int(mask)


@compiled
def _start(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, mask: int, board: Board, units: Rows) -> None:
    """Let a container have what it needs."""
    machine, verdict = nodes[row, MACHINE], board.verdict
    for k in range(len(needs)):
        resource, amount = needs[k, NEEDED], needs[k, AMOUNT]
        if resource == CARDS:
            verdict[NEAR] = mask if verdict[NEAR] == NIL else -1
        if not amount or not is_handed_out(board, machine, policy, resource):
            continue
        if resource == CPUS and not may_take_cpus(board, machine, amount):
            verdict[CODE], verdict[CONTAINER_OF] = BROKEN_CORES, needs[0, CONTAINER]
            return
        if verdict[ONLY_CARDS] and resource != CARDS:
            short = not is_left(board, machine, resource, amount)
            verdict[BESIDE] |= _zones_beside(board, machine, needs[k], mask)
        else:
            short = take(nodes, cards, row, needs[k], mask, board, units)
            if verdict[ONLY_CARDS] and board.machines[machine, CARDS_COUNTED]:
                verdict[BESIDE] |= _zones_beside(board, machine, needs[k], mask)
        if short:
            verdict[CODE], verdict[CONTAINER_OF] = SHORT, needs[0, CONTAINER]
            return


@compiled
def _start_and_end(
    nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, mask: int, board: Board, units: Rows
) -> None:
    """Let an init container have what it needs, which it gives back to its pod."""
    had, before = units.copy(), board.taken.copy()
    _start(nodes, cards, row, policy, needs, mask, board, units)
    if board.verdict[CODE] == ALIGNED:
        give_back(units, board.taken, had, before)


@compiled
def _zones_beside(board: Board, machine: int, need: Rows, mask: int) -> int:
    """The zones among which a need beside cards will lie: those of the mask; -1 if they show only when it is picked."""
    machines, supplies, left = board.machines, board.supplies, 0
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
def distances_of(board: Board, machine: int) -> Rows:
    """The distances that its masks are compared by, if they are."""
    first, zones = board.machines[machine, FIRST_DISTANCE], board.machines[machine, ZONE_COUNT]
    return board.distances[first : first + zones, :zones] if first >= 0 else board.distances[:0, :0]


@compiled
def _measure(nodes: Rows, cards: Rows, row: int, board: Board, units: Rows, taken: Rows, verdict: Rows) -> None:
    """In how many zones all lies that was taken, and whether that is known; on one zone nothing can lie apart."""
    machine, union, unknown = nodes[row, MACHINE], 0, False
    for k in range(len(units)):
        if units[k] >= HELD:
            zones = cards[nodes[row, FIRST_CARD] + k, ZONES]
            union |= zones
            unknown |= zones == 0 and not board.machines[machine, CARDS_COUNTED]
    beside = verdict[BESIDE]
    if beside > 0:
        verdict[BESIDE] = beside if width_of(beside) == 1 or beside & ~union == 0 else -1
        union |= beside
    first = board.machines[machine, FIRST_SUPPLY]
    after = first if verdict[ONLY_CARDS] else board.machines[machine, AFTER_SUPPLIES]
    for at in range(first, after):
        own = taken[at - first]
        if own[MARK] >= HELD or max(own[BYTES], own[PEAK]) > 0:
            union |= board.supplies[at, SUPPLY_ZONES]
            unknown |= board.supplies[at, SUPPLY_ZONES] == 0
    verdict[SPAN] = width_of(union)
    if unknown and board.machines[machine, ZONE_COUNT] > 1:
        verdict[CLAIM] = 0
