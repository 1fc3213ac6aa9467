"""How many units of a request fit on a node now."""

from __future__ import annotations

from ullage.core.kernel.columns import (
    AFTER_CARDS,
    AGAINST,
    ALLOWED,
    CAP,
    COMPUTE,
    COMPUTE_FREE,
    COUNT,
    CPU,
    CPU_FREE,
    FIRST_CARD,
    INDEX,
    KIND,
    MEMORY,
    MEMORY_FREE,
    MODES,
    MOST,
    NAMED,
    SLOTS_FREE,
    SLOTS_TOTAL,
    VRAM,
    VRAM_FREE,
    Rows,
)
from ullage.core.kernel.compiled import compiled


@compiled
def units_on(cards: Rows, card: int, shape: Rows) -> int:
    """How many shares of a request a card has room for; 0 exactly where a filter refuses it."""
    kind = cards[card, KIND] + 1
    compute, vram = shape[kind, COMPUTE], shape[kind, VRAM]
    if not shape[kind, ALLOWED] or cards[card, MODES] & shape[kind, AGAINST]:
        return 0
    if shape[0, NAMED] and not _named(shape, cards[card, INDEX]):
        return 0
    compute_free, vram_free = cards[card, COMPUTE_FREE], cards[card, VRAM_FREE]
    if compute > compute_free or vram > vram_free:
        return 0
    most = shape[kind, MOST]
    if compute:
        most = min(most, compute_free // compute)
    if vram:
        most = min(most, vram_free // vram)
    return int(most)


@compiled
def _named(shape: Rows, index: int) -> bool:
    """Whether a request that names positions of cards names this one."""
    for row in range(len(shape) - shape[0, NAMED], len(shape)):  # noqa: SIM110 - a generator is not compiled
        if shape[row, 0] == index:
            return True
    return False


@compiled
def look_at_cards(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows) -> Rows:
    """How much room each card of a node has, the first card first, in a part of `space`."""
    first = nodes[row, FIRST_CARD]
    units = space[: nodes[row, AFTER_CARDS] - first]
    for k in range(len(units)):
        units[k] = units_on(cards, first + k, shape)
    return units


@compiled
def room_on(nodes: Rows, row: int, shape: Rows, units: Rows) -> int:
    """Units that fit on a node whose cards have this room."""
    cap = shape[0, CAP]
    room = nodes[row, SLOTS_FREE]
    if cap >= 0:
        room = cap - nodes[row, SLOTS_TOTAL] + nodes[row, SLOTS_FREE]
    if shape[0, CPU]:
        room = min(room, nodes[row, CPU_FREE] // shape[0, CPU])
    if shape[0, MEMORY]:
        room = min(room, nodes[row, MEMORY_FREE] // shape[0, MEMORY])
    if room > 0 and shape[0, COUNT]:
        room = min(room, units_over(units, shape[0, COUNT]))
    return int(max(0, room))


@compiled
def units_over(per_card: Rows, count: int) -> int:
    """Units that fit when each takes `count` different cards and card i has room for `per_card[i]` of them.

    The most u for which the cards, each counted for at most u, hold count * u shares: without the k
    cards that have the most room, the others must hold the shares that are left of each unit.
    """
    left = largest = 0
    for units in per_card:
        left += units
        largest = max(largest, units)
    most = left // count
    if count == 1 or not most or largest == 1:
        return most
    falling = per_card.copy()
    for k in range(1, min(count, len(falling) + 1)):
        at = k - 1
        for other in range(k, len(falling)):
            if falling[other] > falling[at]:
                at = other
        falling[k - 1], falling[at] = falling[at], falling[k - 1]
        left -= falling[k - 1]
        most = min(most, left // (count - k))
    return most
