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
    AMOUNT,
    BYTES,
    CARDS,
    CLOSENESS,
    CODE,
    CONTAINER,
    CONTAINER_OF,
    CPUS,
    FIRST_DISTANCE,
    FIRST_SUPPLY,
    FREE,
    HELD,
    ID,
    INIT,
    KNOWN,
    KUBELET,
    MARK,
    MEMORY,
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
    REUSABLE,
    SCALE,
    SCOPE,
    SHORT,
    SPAN,
    STAGE,
    STATIC_CPUS,
    STATIC_MEMORY,
    TOO_MANY,
    TOTAL,
    UNION,
    UNKNOWN,
    WEAKER,
    ZONE_COUNT,
    Board,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import COUNT, FIRST_CARD, MACHINE, NAMED, NEEDS, POLICY, WHOLE, ZONES, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.cpus import take_cpus
from ullage.core.kernel.links import pick_linked
from ullage.core.kernel.masks import (
    MOST_ZONES,
    NIL,
    NONE,
    PREFERRED,
    RESTRICTED,
    admits,
    gather,
    hint,
    keep_masks,
    merge,
    width_of,
)

_BEFORE_ALL = float(2**32)
"""Of a score: one part in a hundred of closeness goes before all that strategies say."""

_COUNTS = 3
"""Counts by mask for one resource: in all, free, given back."""

_AGAIN, _NEAREST, _KNOWN, _ANYWHERE, _STEPS = 0, 1, 2, 3, 4


@compiled
def settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board) -> bool:
    """Whether a request may have cards of a node, which has enough, as zones are; `units` keeps those it then has.

    Of whole cards these are as many as it asks for; of others, those that lie in the zones it was aligned to.
    All it could have, where nobody asks for alignment and the strategy picks by itself. What it takes beside
    cards is left in the board.
    """
    return _settle(nodes, cards, row, shape, units, board, False)


@compiled
def may_settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board) -> bool:
    """The same answer sooner: nothing is said of what it takes beside cards, but in which zones that would be."""
    behind = len(shape) - shape[0, NAMED]
    first = behind - shape[0, NEEDS]
    return _settle(nodes, cards, row, shape, units, board, shape[first, CONTAINER] + 1 >= shape[behind - 1, CONTAINER])


@compiled
def _settle(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board, only_cards: bool) -> bool:
    behind = len(shape) - shape[0, NAMED]
    whole, asked, verdict = shape[0, WHOLE], shape[0, COUNT], board.verdict
    for k in range(len(units)):
        units[k] = OPEN if units[k] > 0 else OUT_OF_REACH
    align(nodes, cards, row, shape[0, POLICY], shape[behind - shape[0, NEEDS] : behind], board, units, only_cards)
    if verdict[CODE] != ALIGNED:
        units[:] = 0
        return False
    if not verdict[KNOWN]:
        return True
    mask, near = verdict[NEAR], 0
    unasked = shape[0, POLICY] <= NONE and board.machines[nodes[row, MACHINE], KUBELET] < 0
    if unasked and shape[behind - shape[0, NEEDS], OWN_PICK]:
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
def aligned_room(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, board: Board, room: int) -> int:
    """How many of the `room` units that a node has beside zones may be there, each with those before it taken.

    `units` says how many shares each card has room for. Of parts of several cards no way to place them has more.
    """
    machines, supplies, machine = board.machines, board.supplies, nodes[row, MACHINE]
    begin, end = (machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]) if machine >= 0 else (0, 0)
    free, left, there = supplies[begin:end, FREE].copy(), units.copy(), 0
    while there < room:
        for k in range(len(units)):
            units[k] = left[k] > 0
        if not settle(nodes, cards, row, shape, units, board):
            break
        if not board.verdict[KNOWN] or (shape[0, COUNT] and not shape[0, WHOLE] and _only_cards(board, end - begin)):
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
    """What the zones of a decision add to the score of its node: 100 over their number, times the weight.

    Where alignment is asked for, more than anything else. Zones that are not known count as none that are near.
    """
    weight = shape[len(shape) - shape[0, NAMED] - shape[0, NEEDS], CLOSENESS] / SCALE
    near = 100 // max(1, verdict[SPAN]) if verdict[KNOWN] else 0
    return float(near * max(weight, _BEFORE_ALL if shape[0, POLICY] > NONE else 0.0))


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
    by = _policy_there(board, machine, policy, verdict)
    if verdict[CODE] != ALIGNED or machine < 0 or machines[machine, ZONE_COUNT] > MOST_ZONES:
        return
    verdict[KNOWN] = 1
    if not only_cards:
        _open_supplies(board, machine, taken)
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
        if verdict[CODE] == ALIGNED:
            _start(nodes, cards, row, by, needs[begin:end], mask, board, units)
        begin = end
    _measure(nodes, cards, row, board, units, taken, verdict)


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
def taken_of(machines: Rows, supplies: Rows, machine: int, taken: Rows, found: Rows) -> int:
    """Write the supplies of a machine that were decided to be taken: row there, resource, zones, id, bytes."""
    first, count = machines[machine, FIRST_SUPPLY], 0
    for at in range(first, machines[machine, AFTER_SUPPLIES]):
        own = taken[at - first]
        amount = max(own[BYTES], own[PEAK])
        if own[MARK] >= HELD or amount:
            found[count, 0], found[count, 1], found[count, 2] = (
                at - first,
                supplies[at, RESOURCE],
                supplies[at, SUPPLY_ZONES],
            )
            found[count, 3], found[count, 4] = supplies[at, ID], amount
            count += 1
    return count


@compiled
def _policy_there(board: Board, machine: int, asked: int, verdict: Rows) -> int:
    """The policy that a request meets on a machine, or why it cannot go there whatever is free."""
    if machine < 0:
        verdict[CODE] = UNKNOWN if asked >= RESTRICTED else ALIGNED
        return NONE
    there = board.machines[machine, KUBELET]
    if asked >= RESTRICTED and 0 <= there < asked:
        verdict[CODE] = WEAKER
    by = there if there >= 0 else max(asked, NONE)
    if by >= RESTRICTED and board.machines[machine, ZONE_COUNT] > MOST_ZONES:
        verdict[CODE] = TOO_MANY
    return int(by)


@compiled
def _open_supplies(board: Board, machine: int, taken: Rows) -> None:
    """All supplies of a machine that anything is left of are open; of bytes nothing is taken yet."""
    first = board.machines[machine, FIRST_SUPPLY]
    for at in range(first, board.machines[machine, AFTER_SUPPLIES]):
        counted = not in_bytes(board.supplies[at, TOTAL])
        taken[at - first, BYTES] = taken[at - first, PEAK] = 0
        taken[at - first, MARK] = OPEN if counted and board.supplies[at, FREE] > 0 else OUT_OF_REACH


@compiled
def in_bytes(total: int) -> bool:
    """Whether a supply is an amount, not one device."""
    return total > 1


@compiled
def _merged(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, board: Board, units: Rows) -> int:
    """The mask that a container, or a pod as one, is aligned by; the verdict says so if its policy refuses it."""
    machine, verdict = nodes[row, MACHINE], board.verdict
    if policy <= NONE:
        return NIL
    masks = 1 << board.machines[machine, ZONE_COUNT]
    work = board.counts[: len(needs) + _COUNTS, :masks]
    if len(work) < len(needs) + _COUNTS:
        work = np.zeros((len(needs) + _COUNTS, masks), np.int64)
    hints, counts = work[_COUNTS:], work[:_COUNTS]
    for k in range(len(needs)):
        _hint_of(nodes, cards, row, policy, needs[k], board, units, hints[k], counts)
    damage = counts[0, : masks if board.machines[machine, KUBELET] < 0 else 0]
    if len(damage):
        _free_cards(nodes, cards, row, units, damage)
    mask, preferred = merge(hints, policy, distances_of(board, machine), damage)
    verdict[MERGED], verdict[CONTAINER_OF] = mask, needs[0, CONTAINER]
    if not admits(policy, preferred):
        verdict[CODE] = NOT_ALIGNED
    return int(mask)


@compiled
def _start(nodes: Rows, cards: Rows, row: int, policy: int, needs: Rows, mask: int, board: Board, units: Rows) -> None:
    """Let a container have what it needs; an init container gives it back to its pod."""
    machine, taken, verdict = nodes[row, MACHINE], board.taken, board.verdict
    ended = needs[0, STAGE] == INIT
    had, before = units[: len(units) * ended].copy(), taken[: len(taken) * ended].copy()
    for k in range(len(needs)):
        if needs[k, NEEDED] == CARDS:
            verdict[NEAR] = mask if verdict[NEAR] == NIL else -1
        managed = is_handed_out(board, machine, policy, needs[k, NEEDED])
        if not managed:
            continue
        if verdict[ONLY_CARDS] and needs[k, NEEDED] != CARDS:
            short = _left(board, machine, needs[k, NEEDED]) < needs[k, AMOUNT]
        else:
            short = _take(nodes, cards, row, needs[k], mask, board, units)
        if short:
            verdict[CODE], verdict[CONTAINER_OF] = SHORT, needs[0, CONTAINER]
            return
    if ended:
        _give_back(units, taken, had, before)


@compiled
def is_handed_out(board: Board, machine: int, policy: int, resource: int) -> bool:
    """Whether a resource has owners of its own there: cards always, others if they are recorded and managed."""
    machines = board.machines
    if resource == CARDS:
        return True
    managed = True
    if resource in (CPUS, MEMORY):
        managed = bool(machines[machine, STATIC_CPUS if resource == CPUS else STATIC_MEMORY])
        managed = managed if machines[machine, KUBELET] >= 0 else policy > NONE
    return managed and _recorded(board, machine, resource)


@compiled
def _left(board: Board, machine: int, resource: int) -> int:
    """How much of a resource is free on a machine."""
    left = 0
    for at in range(board.machines[machine, FIRST_SUPPLY], board.machines[machine, AFTER_SUPPLIES]):
        if board.supplies[at, RESOURCE] == resource:
            left += max(0, board.supplies[at, FREE])
    return left


@compiled
def _recorded(board: Board, machine: int, resource: int) -> bool:
    """Whether a machine says anything of a resource."""
    for at in range(board.machines[machine, FIRST_SUPPLY], board.machines[machine, AFTER_SUPPLIES]):
        if board.supplies[at, RESOURCE] == resource:
            return True
    return False


@compiled
def distances_of(board: Board, machine: int) -> Rows:
    """The distances that its masks are compared by, if they are."""
    first, zones = board.machines[machine, FIRST_DISTANCE], board.machines[machine, ZONE_COUNT]
    return board.distances[first : first + zones, :zones] if first >= 0 else board.distances[:0, :0]


# --- hints ---


@compiled
def _hint_of(
    nodes: Rows,
    cards: Rows,
    row: int,
    policy: int,
    need: Rows,
    board: Board,
    units: Rows,
    hints: Rows,
    counts: Rows,
) -> None:
    """The hints of one resource for one container; nil, preferred, if it has nothing to say."""
    machine, resource, total, free, reuse = nodes[row, MACHINE], need[NEEDED], counts[0], counts[1], counts[2]
    counts[:] = 0
    hints[:] = 0
    if is_handed_out(board, machine, policy, resource):
        if resource == CARDS:
            _count_cards(nodes, cards, row, units, total, free, reuse)
        else:
            _count_supplies(board, machine, resource, total, free, reuse)
    known = 0
    for mask in range(1, len(total)):
        known += total[mask]
    if not known:
        hints[NIL] = PREFERRED
        return
    kept = 0
    for mask in range(1, len(reuse)):
        kept += reuse[mask]
    gather(total)
    gather(free)
    hint(need[AMOUNT], total if board.machines[machine, KUBELET] >= 0 else free, free, hints)
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
def _count_supplies(board: Board, machine: int, resource: int, total: Rows, free: Rows, reuse: Rows) -> None:
    """Count supplies of a resource by the exact set of zones they lie in."""
    first, supplies, taken = board.machines[machine, FIRST_SUPPLY], board.supplies, board.taken
    untouched = board.verdict[ONLY_CARDS]
    for at in range(first, board.machines[machine, AFTER_SUPPLIES]):
        if supplies[at, RESOURCE] != resource:
            continue
        zones = supplies[at, SUPPLY_ZONES]
        total[zones] += supplies[at, TOTAL]
        if untouched:
            free[zones] += max(0, supplies[at, FREE])
            continue
        own = taken[at - first, MARK]
        if in_bytes(supplies[at, TOTAL]):
            free[zones] += max(0, supplies[at, FREE] - taken[at - first, BYTES])
        else:
            free[zones] += own in (OPEN, REUSABLE)
            reuse[zones] += own == REUSABLE


@compiled
def _free_cards(nodes: Rows, cards: Rows, row: int, units: Rows, damage: Rows) -> None:
    """By mask, the cards that are free there: a set of zones with few is broken already, and does least damage."""
    damage[:] = 0
    for k in range(len(units)):
        damage[cards[nodes[row, FIRST_CARD] + k, ZONES]] += units[k] == OPEN
    gather(damage)


# --- taking ---


@compiled
def _take(nodes: Rows, cards: Rows, row: int, need: Rows, mask: int, board: Board, units: Rows) -> bool:
    """Take what a container needs of one resource, its zones first. Whether it was too little."""
    machine, resource, amount = nodes[row, MACHINE], need[NEEDED], need[AMOUNT]
    first, last, taken = board.machines[machine, FIRST_SUPPLY], board.machines[machine, AFTER_SUPPLIES], board.taken
    if resource == CARDS:
        return _take_cards(nodes, cards, row, amount, mask, board, units)
    if resource == CPUS:
        return take_cpus(board.supplies[first:last], amount, mask, taken, board.machines[machine, KUBELET] < 0)
    return _take_supplies(board.supplies[first:last], resource, amount, mask, taken)


@compiled
def _comes(step: int, mark: int, zones: int, mask: int) -> bool:
    """Whether something is taken in this step: what it had before, then in its zones, in a known one, anywhere."""
    if step == _AGAIN:
        return mark == REUSABLE
    if mark != OPEN:
        return False
    return bool(mask == NIL or zones & mask) if step == _NEAREST else bool(zones or step == _ANYWHERE)


@compiled
def _take_cards(nodes: Rows, cards: Rows, row: int, amount: int, mask: int, board: Board, units: Rows) -> bool:
    """Take cards step by step. Whether they are too few.

    Of more than are needed in a step a kubelet takes the lowest; Ullage those that are joined best and break least.
    """
    first, binds = nodes[row, FIRST_CARD], board.machines[nodes[row, MACHINE], KUBELET] < 0
    by_index = board.links.by_index[first : first + len(units)]
    may, chosen = board.spare[0, : len(units)], board.spare[1]
    for step in range(_STEPS):
        some = 0
        for k in range(len(units)):
            zones = cards[first + k, ZONES]
            may[k] = _comes(step, units[k], zones, mask) and (zones != 0 or step != _NEAREST or not binds)
            some += may[k]
        if binds and some > amount > 0:
            pick_linked(board.links, nodes, row, may, may[:0], chosen[:amount])
            may[:] = 0
            for k in range(amount):
                may[chosen[k] - first] = 1
        for k in by_index:
            if amount > 0 and may[k]:
                units[k] = HELD
                amount -= 1
    return bool(amount > 0)


@compiled
def _take_supplies(supplies: Rows, resource: int, amount: int, mask: int, taken: Rows) -> bool:
    """Take devices, or bytes of zones, in the same steps."""
    for step in range(_STEPS):
        for at in range(len(supplies)):
            if supplies[at, RESOURCE] != resource or amount <= 0:
                continue
            zones = supplies[at, SUPPLY_ZONES]
            if in_bytes(supplies[at, TOTAL]):
                left = max(0, supplies[at, FREE] - taken[at, BYTES])
                some = min(amount, left) if _comes(step, OPEN, zones, mask) else 0
                taken[at, BYTES] += some
                amount -= some
            elif _comes(step, taken[at, MARK], zones, mask):
                taken[at, MARK] = HELD
                amount -= 1
    return bool(amount > 0)


@compiled
def _give_back(units: Rows, taken: Rows, had: Rows, before: Rows) -> None:
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
def _measure(nodes: Rows, cards: Rows, row: int, board: Board, units: Rows, taken: Rows, verdict: Rows) -> None:
    """The union of the zones of all that was taken."""
    union = 0
    for k in range(len(units)):
        if units[k] >= HELD:
            union |= cards[nodes[row, FIRST_CARD] + k, ZONES]
    first = board.machines[nodes[row, MACHINE], FIRST_SUPPLY]
    if verdict[ONLY_CARDS]:
        union |= verdict[MERGED]  # what is taken beside cards lies there
        verdict[UNION], verdict[SPAN] = union, width_of(union)
        return
    for at in range(first, board.machines[nodes[row, MACHINE], AFTER_SUPPLIES]):
        own = taken[at - first]
        if own[MARK] >= HELD or max(own[BYTES], own[PEAK]) > 0:
            union |= board.supplies[at, SUPPLY_ZONES]
    verdict[UNION], verdict[SPAN] = union, width_of(union)
