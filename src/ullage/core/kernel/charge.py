"""The columns of a node and its cards when an allocation comes or goes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.columns import (
    AFTER,
    BEFORE,
    CHANGED,
    COMPUTE,
    COMPUTE_FREE,
    COMPUTE_TOTAL,
    COUNT,
    CPU,
    CPU_FREE,
    FREED,
    FULL,
    GPU_FREE,
    KIND,
    LEFT,
    MEMORY,
    MEMORY_FREE,
    MODES,
    RUNS,
    SHARE,
    SLOTS_FREE,
    USERS,
    VRAM,
    VRAM_FREE,
    VRAM_TOTAL,
    WHOLE,
    Rows,
)
from ullage.core.kernel.compiled import compiled, lean

Flags = npt.NDArray[np.bool_]

TAKEN_CARD, TAKEN_COMPUTE, TAKEN_VRAM, TAKEN_HOW = 0, 1, 2, 3
"""What is taken: of which card, GFLOPS and bytes (-1: all); the mode that comes, or the modes that stay."""
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
    """Take (sign 1) or give back (-1) what one allocation has of a node and of `count` cards; the clock after it.

    `sizes` are the bits of what runs there that change. A card that was moved to another node changes that one.
    `newest` is the node that changed last; now it is `row`.
    """
    nodes[row, CPU_FREE] -= sign * cpu
    nodes[row, MEMORY_FREE] -= sign * memory
    nodes[row, SLOTS_FREE] -= sign
    nodes[row, RUNS] ^= sizes
    for k in range(count):
        card = taken[k, TAKEN_CARD]
        compute, vram = taken[k, TAKEN_COMPUTE], taken[k, TAKEN_VRAM]
        cards[card, COMPUTE_FREE] -= sign * (cards[card, COMPUTE_TOTAL] if compute < 0 else compute)
        cards[card, VRAM_FREE] -= sign * (cards[card, VRAM_TOTAL] if vram < 0 else vram)
        was_idle = cards[card, USERS] == 0
        cards[card, USERS] += sign
        cards[card, MODES] = taken[k, TAKEN_HOW] | (cards[card, MODES] if sign > 0 else 0)
        if usable[card] and was_idle != (cards[card, USERS] == 0):
            nodes[home[card], GPU_FREE] -= sign
        follow_free(cards, card)
        if home[card] != row:
            touch(nodes, newest, clock, home[card], sign)
            newest, clock = home[card], clock + 1
    touch(nodes, newest, clock, row, sign)
    return clock + 1


@lean
def charge_unit(nodes: Rows, cards: Rows, row: int, shape: Rows, mode: int, chosen: Rows) -> None:
    """Take one unit out of the rows of a node and of its chosen cards; `mode` is how it holds them."""
    nodes[row, CPU_FREE] -= shape[0, CPU]
    nodes[row, MEMORY_FREE] -= shape[0, MEMORY]
    nodes[row, SLOTS_FREE] -= 1
    whole = shape[0, WHOLE]
    if shape[0, COUNT]:
        nodes[row, RUNS] |= 1 << (min(shape[0, COUNT], LARGEST_SIZE) if whole else 0)
    for card in chosen:
        kind = cards[card, KIND] + 1
        cards[card, COMPUTE_FREE] -= cards[card, COMPUTE_TOTAL] if whole else shape[kind, COMPUTE]
        cards[card, VRAM_FREE] -= cards[card, VRAM_TOTAL] if whole else shape[kind, VRAM]
        cards[card, MODES] |= mode
        if not cards[card, USERS]:
            nodes[row, GPU_FREE] -= 1
        cards[card, USERS] += 1
        follow_free(cards, card)


@lean
def touch(nodes: Rows, newest: int, clock: int, row: int, sign: int) -> None:
    """A node changed, at this clock; `newest` is the one before it, and `sign` below 0 says that it has more room."""
    nodes[row, CHANGED] = clock
    if sign < 0:
        nodes[row, FREED] = clock
    if row != newest:
        before, after = nodes[row, BEFORE], nodes[row, AFTER]
        nodes[after, BEFORE] = before
        if before >= 0:
            nodes[before, AFTER] = after
        nodes[row, BEFORE], nodes[row, AFTER] = newest, -1
        nodes[newest, AFTER] = row


@compiled
def follow_all(cards: Rows) -> None:
    """Make the columns that follow from what is free true for every card."""
    for card in range(len(cards)):
        follow_free(cards, card)


@lean
def follow_free(cards: Rows, card: int) -> None:
    """Make the columns that follow from what is free on a card true."""
    compute, compute_free = cards[card, COMPUTE_TOTAL], cards[card, COMPUTE_FREE]
    vram, vram_free = cards[card, VRAM_TOTAL], cards[card, VRAM_FREE]
    share = min(compute_free * _MILLI // compute if compute else _MILLI, vram_free * _MILLI // vram if vram else _MILLI)
    cards[card, SHARE] = max(0, share)
    left = part_of(compute_free, 2 * compute) if compute else 0
    cards[card, LEFT] = left + (part_of(vram_free, 2 * vram) if vram else 0)


@compiled
def part_of(free: int, total: int) -> int:
    """`free * FULL // total`, also where the product is beyond 64 bits."""
    if -_SAFE < free < _SAFE:
        return free * FULL // total
    share = free // total
    rest, full = free - share * total, FULL
    while full > 1:
        rest, share, full = 2 * rest, 2 * share, full // 2
        if rest >= total:
            rest, share = rest - total, share + 1
    return share
