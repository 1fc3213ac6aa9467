"""Whether a unit of a request fits on a node now, and how many do."""

from __future__ import annotations

from ullage.core.kernel.columns import (
    AFTER_CARDS,
    AGAINST,
    ALLOWED,
    BEFORE,
    BY_INDEX,
    CAP,
    CHANGED,
    COMPUTE,
    COMPUTE_FREE,
    COUNT,
    CPU,
    CPU_FREE,
    FIRST_CARD,
    GPU_FREE,
    INDEX,
    KIND,
    MEMORY,
    MEMORY_FREE,
    MODES,
    MOST,
    NAME,
    NAMED,
    NAMED_BY,
    NEEDS,
    NOT_CARD,
    OPEN,
    SLOTS_FREE,
    SLOTS_TOTAL,
    USERS,
    USERS_MOST,
    VRAM,
    VRAM_FREE,
    WHOLE,
    Rows,
)
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.zones import ROOM, decide

# --- one card ---


@lean
def takes(cards: Rows, card: int, shape: Rows) -> bool:
    """Whether a card has room for a share of a request; not so exactly where a filter refuses it."""
    kind = cards[card, KIND] + 1
    if not shape[kind, ALLOWED] or cards[card, MODES] & shape[kind, AGAINST]:
        return False
    if shape[kind, COMPUTE] > cards[card, COMPUTE_FREE] or shape[kind, VRAM] > cards[card, VRAM_FREE]:
        return False
    if cards[card, COMPUTE_FREE] <= 0:
        return False  # who asks for no compute needs some too
    if cards[card, USERS] >= shape[kind, USERS_MOST]:
        return False
    return not shape[0, NAMED] or _named(shape, card, cards[card, INDEX])


@lean
def _named(shape: Rows, card: int, index: int) -> bool:
    """Whether a request that names cards takes this one: one of the positions, one of the cards, none of the others."""
    asked = met = 0
    for row in range(len(shape) - shape[0, NAMED], len(shape)):
        by, here = shape[row, NAMED_BY], shape[row, NAME] == (index if shape[row, NAMED_BY] == BY_INDEX else card)
        if by == NOT_CARD:
            if here:
                return False
        else:
            asked |= 1 << by
            met |= int(here) << by
    return bool(asked == met)


@lean
def units_on(cards: Rows, card: int, shape: Rows) -> int:
    """How many shares of a request a card has room for."""
    if not takes(cards, card, shape):
        return 0
    kind = cards[card, KIND] + 1
    most = min(shape[kind, MOST], shape[kind, USERS_MOST] - cards[card, USERS])
    if shape[kind, COMPUTE]:
        most = min(most, cards[card, COMPUTE_FREE] // shape[kind, COMPUTE])
    if shape[kind, VRAM]:
        most = min(most, cards[card, VRAM_FREE] // shape[kind, VRAM])
    return int(most)


# --- one node ---


@compiled
def look_at_cards(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows) -> Rows:
    """Which cards of a node take a share, 1 or 0, the first card first, in a part of `space`."""
    first = nodes[row, FIRST_CARD]
    units = space[: nodes[row, AFTER_CARDS] - first]
    for k in range(len(units)):
        units[k] = takes(cards, first + k, shape)
    return units


@lean
def slots_left(nodes: Rows, row: int, shape: Rows) -> int:
    """Allocations that a node may still take, as the request's rules or else the node say; below 0 if it has more."""
    left, cap = nodes[row, SLOTS_FREE], shape[0, CAP]
    return int(left if cap < 0 else left + cap - nodes[row, SLOTS_TOTAL])


@lean
def fits_beside_cards(nodes: Rows, row: int, shape: Rows) -> bool:
    """Whether a node has what a unit needs beside cards, and not too few idle ones."""
    if slots_left(nodes, row, shape) < 1 or (shape[0, WHOLE] and nodes[row, GPU_FREE] < shape[0, COUNT]):
        return False
    if shape[0, CPU] and nodes[row, CPU_FREE] < shape[0, CPU]:
        return False
    return not shape[0, MEMORY] or bool(nodes[row, MEMORY_FREE] >= shape[0, MEMORY])


@lean
def enough(units: Rows, count: int) -> bool:
    """Whether so many cards take a share."""
    for k in range(len(units)):
        count -= units[k] > 0
    return count <= 0


@compiled
def room_on(nodes: Rows, row: int, shape: Rows, units: Rows) -> int:
    """Units that fit on a node whose cards have room for so many shares each."""
    room = slots_left(nodes, row, shape)
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


# --- all nodes ---


@compiled
def _room_now(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, store: Rows, said: Rows) -> int:
    if not said[row, OPEN] or not fits_beside_cards(nodes, row, shape):
        return 0
    return units_there(nodes, cards, row, shape, space, store)


@compiled
def units_there(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, store: Rows) -> int:
    """Units that fit on a node now."""
    first = nodes[row, FIRST_CARD]
    units = space[: nodes[row, AFTER_CARDS] - first]
    for k in range(len(units)):
        units[k] = units_on(cards, first + k, shape)
    room = room_on(nodes, row, shape, units)
    return int(decide(nodes, cards, row, shape, units, store, ROOM, room)) if room and shape[0, NEEDS] else room


@compiled
def refresh_room(
    nodes: Rows, cards: Rows, newest: int, since: int, shape: Rows, space: Rows, store: Rows, said: Rows, room: Rows
) -> None:
    """Write the room of the nodes that changed since a clock, the newest first."""
    row = newest
    while row >= 0 and nodes[row, CHANGED] >= since:
        room[row] = _room_now(nodes, cards, row, shape, space, store, said)
        row = nodes[row, BEFORE]
