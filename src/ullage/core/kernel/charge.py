"""Updates of the columns of a node and its cards when an allocation starts or ends."""

from __future__ import annotations

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Flags, Rows
from ullage.core.kernel.compiled import compiled, lean

TAKEN_CARD, TAKEN_COMPUTE, TAKEN_VRAM, TAKEN_HOW = 0, 1, 2, 3
"""What is taken: the card, its GFLOPS and bytes (-1: all), and the mode that is added, or the modes that remain."""
TAKEN_COLUMNS = 4

LARGEST_SIZE = 62
"""The largest number of cards that has a bit of its own in `RUNS`."""

_MILLI = 1000
_SAFE = 2**43


@compiled
def charge(
    nodes: Rows,
    cards: Rows,
    home: Rows,
    usable: Flags,
    newest: int,
    clock: int,
    row: int,
    sign: int,
    cpu: int,
    memory: int,
    sizes: int,
    taken: Rows,
    count: int,
) -> int:
    """Take (sign 1) or free (-1) what one allocation has of a node and of `count` cards. Return the clock after it.

    `sizes` are the bits of `RUNS` that change. A card that was moved to another node changes that node. `newest` is
    the node that changed last before `row`.
    """
    nodes[row, c.CPU_FREE] -= sign * cpu
    nodes[row, c.MEMORY_FREE] -= sign * memory
    nodes[row, c.SLOTS_FREE] -= sign
    nodes[row, c.RUNS] ^= sizes
    for k in range(count):
        card = taken[k, TAKEN_CARD]
        compute, vram = taken[k, TAKEN_COMPUTE], taken[k, TAKEN_VRAM]
        cards[card, c.COMPUTE_FREE] -= sign * (cards[card, c.COMPUTE_TOTAL] if compute < 0 else compute)
        cards[card, c.VRAM_FREE] -= sign * (cards[card, c.VRAM_TOTAL] if vram < 0 else vram)
        was_idle = cards[card, c.USERS] == 0
        cards[card, c.USERS] += sign
        cards[card, c.MODES] = taken[k, TAKEN_HOW] | (cards[card, c.MODES] if sign > 0 else 0)
        if usable[card] and was_idle != (cards[card, c.USERS] == 0):
            nodes[home[card], c.GPU_FREE] -= sign
        follow_free(cards, card)
        if home[card] != row:
            touch(nodes, newest, clock, home[card], sign)
            newest, clock = home[card], clock + 1
    touch(nodes, newest, clock, row, sign)
    return clock + 1


@lean
def charge_unit(nodes: Rows, cards: Rows, row: int, shape: Rows, mode: int, chosen: Rows) -> None:
    """Charge one unit to a node and its chosen cards, which it holds in this mode."""
    nodes[row, c.CPU_FREE] -= shape[0, c.CPU]
    nodes[row, c.MEMORY_FREE] -= shape[0, c.MEMORY]
    nodes[row, c.SLOTS_FREE] -= 1
    whole = shape[0, c.WHOLE]
    if shape[0, c.COUNT]:
        nodes[row, c.RUNS] |= 1 << (min(shape[0, c.COUNT], LARGEST_SIZE) if whole else 0)
    for card in chosen:
        kind = cards[card, c.KIND] + 1
        cards[card, c.COMPUTE_FREE] -= cards[card, c.COMPUTE_TOTAL] if whole else shape[kind, c.COMPUTE]
        cards[card, c.VRAM_FREE] -= cards[card, c.VRAM_TOTAL] if whole else shape[kind, c.VRAM]
        cards[card, c.MODES] |= mode
        if not cards[card, c.USERS]:
            nodes[row, c.GPU_FREE] -= 1
        cards[card, c.USERS] += 1
        follow_free(cards, card)


@lean
def touch(nodes: Rows, newest: int, clock: int, row: int, sign: int) -> None:
    """Record that a node changed at this clock, after `newest`; with a `sign` below 0 it has more room."""
    nodes[row, c.CHANGED] = clock
    if sign < 0:
        nodes[row, c.FREED] = clock
    if row != newest:
        before, after = nodes[row, c.BEFORE], nodes[row, c.AFTER]
        nodes[after, c.BEFORE] = before
        if before >= 0:
            nodes[before, c.AFTER] = after
        nodes[row, c.BEFORE] = newest
        nodes[newest, c.AFTER] = row  # nobody reads what comes after the newest one


@compiled
def follow_all(cards: Rows) -> None:
    """Update the derived columns of all cards."""
    for card in range(len(cards)):
        follow_free(cards, card)


@lean
def follow_free(cards: Rows, card: int) -> None:
    """Update the columns of a card that are derived from what is free."""
    compute, compute_free = cards[card, c.COMPUTE_TOTAL], cards[card, c.COMPUTE_FREE]
    vram, vram_free = cards[card, c.VRAM_TOTAL], cards[card, c.VRAM_FREE]
    share = min(compute_free * _MILLI // compute if compute else _MILLI, vram_free * _MILLI // vram if vram else _MILLI)
    cards[card, c.SHARE] = max(0, share)
    left = part_of(compute_free, 2 * compute) if compute else 0
    cards[card, c.LEFT] = left + (part_of(vram_free, 2 * vram) if vram else 0)


@compiled
def part_of(free: int, total: int) -> int:
    """Return `free * FULL // total`, also where the product exceeds 64 bits."""
    if -_SAFE < free < _SAFE:
        return free * c.FULL // total
    share = free // total
    rest, full = free - share * total, c.FULL
    while full > 1:
        rest, share, full = 2 * rest, 2 * share, full // 2
        if rest >= total:
            rest, share = rest - total, share + 1
    return share
