"""The functions of best fit and of spread (`core/strategies/best_fit.py`): what is left decides."""

from __future__ import annotations

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.charge import part_of
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined, lean

State = tuple[int]
"""1 if the loosest is best, else 0."""


@inlined
def node(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: State, notes: Rows) -> float:
    """Add three terms of what is left (cpu, memory, cards); whether the node is in use counts more."""
    (spread,), left = state, 0
    if shape[0, c.CPU]:
        left += part_of(nodes[row, c.CPU_FREE] - shape[0, c.CPU], nodes[row, c.CPU_TOTAL])
    if shape[0, c.MEMORY]:
        left += part_of(nodes[row, c.MEMORY_FREE] - shape[0, c.MEMORY], nodes[row, c.MEMORY_TOTAL])
    count = shape[0, c.COUNT]
    if count and shape[0, c.WHOLE]:
        left += (nodes[row, c.GPU_FREE] - count) * c.FULL // max(1, nodes[row, c.GPU_TOTAL])
    elif count:
        left += _left_on_tightest(nodes, cards, row, fits_per_card, spread, count) // count
    tight = left if spread else 3 * c.FULL - left
    used = nodes[row, c.SLOTS_TOTAL] != nodes[row, c.SLOTS_FREE]
    spares_cards = not count and not nodes[row, c.GPU_TOTAL]
    return float(tight + 4 * c.FULL * (used != bool(spread)) + 8 * c.FULL * spares_cards)


@inlined
def card(cards: Rows, card: int, shape: Rows, state: State) -> float:
    """Score a fuller card higher; with spread an emptier one."""
    (spread,), left = state, cards[card, c.LEFT]
    return float(left if spread else c.FULL - left)


@inlined
def pick(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: State, out: Rows) -> None:
    """Pick cards of one zone if a zone has enough, the fullest such zone first; else the lowest positions."""
    if not shape[0, c.WHOLE]:
        (spread,) = state
        tightest(nodes, cards, row, fits_per_card, spread, out)
        return
    whole_cards(nodes, cards, row, fits_per_card, out)


@lean
def whole_cards(nodes: Rows, cards: Rows, row: int, fits_per_card: Rows, out: Rows) -> None:
    """Pick as many cards as `out` has room for, from one zone if a zone has enough, the fullest such zone first."""
    first, zone = nodes[row, c.FIRST_CARD], fullest_zone(nodes, cards, row, fits_per_card, len(out))
    taken = 0
    for k in range(len(fits_per_card)):
        if taken < len(out) and fits_per_card[k] and (zone == -1 or cards[first + k, c.ZONES] == zone):
            out[taken] = first + k
            taken += 1


@lean
def fullest_zone(nodes: Rows, cards: Rows, row: int, fits_per_card: Rows, count: int) -> int:
    """Return the zone with the fewest cards that fit, but `count` or more, the lowest first; -1 if none."""
    first, best, fewest = nodes[row, c.FIRST_CARD], -1, len(fits_per_card) + 1
    for k in range(len(fits_per_card)):
        zone, here = cards[first + k, c.ZONES], 0
        for other in range(len(fits_per_card)):
            here += fits_per_card[other] > 0 and cards[first + other, c.ZONES] == zone
        if here >= count and (here < fewest or (here == fewest and zone < best)):
            best, fewest = zone, here
    return best


@compiled
def _left_on_tightest(nodes: Rows, cards: Rows, row: int, fits_per_card: Rows, spread: int, count: int) -> int:
    """Return what the cards that `tightest` would pick have left, together."""
    if count > 1:
        chosen, left = np.empty(count, np.int64), 0
        tightest(nodes, cards, row, fits_per_card, spread, chosen)
        for card in chosen:
            left += cards[card, c.LEFT]
        return left
    first, best = nodes[row, c.FIRST_CARD], -1
    for k in range(len(fits_per_card)):
        if fits_per_card[k]:
            left = cards[first + k, c.LEFT]
            if best < 0 or (left > best if spread else left < best):
                best = left
    return int(best)


@lean
def tightest(nodes: Rows, cards: Rows, row: int, fits_per_card: Rows, spread: int, out: Rows) -> None:
    """Pick the cards with least left (with spread: most), as many as `out` has room for; ties by uuid."""
    first, taken = nodes[row, c.FIRST_CARD], 0
    for k in range(len(fits_per_card)):
        if not fits_per_card[k]:
            continue
        card = first + k
        left, place = cards[card, c.LEFT], cards[card, c.PLACE]
        at = taken
        while at > 0:
            there = cards[out[at - 1], c.LEFT]
            if cards[out[at - 1], c.PLACE] < place if there == left else (there < left) != bool(spread):
                break
            if at < len(out):
                out[at] = out[at - 1]
            at -= 1
        if at < len(out):
            out[at] = card
            taken = min(taken + 1, len(out))
