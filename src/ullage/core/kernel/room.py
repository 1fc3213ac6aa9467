"""Whether a unit of a request fits on a node now, and how many do."""

from __future__ import annotations

from ullage.core.kernel.columns import (
    AFTER_CARDS,
    BEFORE,
    CHANGED,
    COMPUTE,
    COMPUTE_FREE,
    COUNT,
    CPU,
    CPU_FREE,
    FIRST_CARD,
    GPU_FREE,
    KIND,
    MEMORY,
    MEMORY_FREE,
    MOST,
    NEEDS,
    OPEN,
    USERS,
    USERS_MOST,
    VRAM,
    VRAM_FREE,
    WHOLE,
    Rows,
)
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.verdict import lacks, slots_left, takes
from ullage.core.kernel.zones import ROOM, decide

# --- one card ---


@lean
def units_on(cards: Rows, card: int, shape: Rows) -> int:
    """Return how many shares of a request fit on a card."""
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
    """Return 1 for each card of a node that takes a share, else 0, in a part of `space`."""
    first = nodes[row, FIRST_CARD]
    units = space[: nodes[row, AFTER_CARDS] - first]
    for k in range(len(units)):
        units[k] = takes(cards, first + k, shape)
    return units


@lean
def fits_beside_cards(nodes: Rows, row: int, shape: Rows) -> bool:
    """Return whether a node has what a unit needs besides cards, and not too few idle ones."""
    if shape[0, WHOLE] and nodes[row, GPU_FREE] < shape[0, COUNT]:
        return False
    return lacks(nodes, row, shape) == 0


@lean
def enough(units: Rows, count: int) -> bool:
    """Return whether at least so many cards take a share."""
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
