"""Best fit and its opposite: what is left over decides. Best fit is what sessions are placed by.

Nodes in use come before empty ones, then the tightest; work without cards goes to nodes without cards.
Whole cards come from the fullest zone that has enough, parts from the cards they fill best. Spread turns
all of it round: empty nodes, the loosest fit, the emptiest card.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import (
    COMPUTE_FREE,
    COMPUTE_TOTAL,
    COUNT,
    CPU,
    CPU_FREE,
    CPU_TOTAL,
    FIRST_CARD,
    GPU_FREE,
    GPU_TOTAL,
    MEMORY,
    MEMORY_FREE,
    MEMORY_TOTAL,
    PLACE,
    SLOTS_FREE,
    SLOTS_TOTAL,
    VRAM_FREE,
    VRAM_TOTAL,
    WHOLE,
    ZONE,
    Rows,
)
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.strategies.strategy import Strategy

_BITS = 20
_FULL = 1 << _BITS
"""A whole node's worth of one term of the score; terms are integers so that every CPU agrees."""

_SAFE = 1 << (63 - _BITS)

State = tuple[Rows]
"""One number: 1 if the loosest is best."""


@inlined
def node(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: State, note: Rows) -> float:
    """Three terms of what is left: cpu, memory, cards; before them whether the node is in use."""
    spread = state[0][0]
    left = 0
    if shape[0, CPU]:
        left += _share(nodes[row, CPU_FREE] - shape[0, CPU], nodes[row, CPU_TOTAL])
    if shape[0, MEMORY]:
        left += _share(nodes[row, MEMORY_FREE] - shape[0, MEMORY], nodes[row, MEMORY_TOTAL])
    count = shape[0, COUNT]
    if count and shape[0, WHOLE]:
        left += (nodes[row, GPU_FREE] - count) * _FULL // max(1, nodes[row, GPU_TOTAL])
    elif count:
        chosen = np.empty(count, np.int64)
        tightest(nodes, cards, row, units, spread, chosen)
        here = 0
        for card in chosen:
            here += left_on(cards, card)
        left += here // count
    tight = left if spread else 3 * _FULL - left
    used = nodes[row, SLOTS_TOTAL] != nodes[row, SLOTS_FREE]
    spares_cards = not count and not nodes[row, GPU_TOTAL]
    return float(tight + 4 * _FULL * (used != bool(spread)) + 8 * _FULL * spares_cards)


@inlined
def card(cards: Rows, card: int, shape: Rows, state: State) -> float:
    """The fuller the better; with spread the emptier."""
    left = left_on(cards, card)
    return float(left if state[0][0] else _FULL - left)


@inlined
def pick(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: State, out: Rows) -> None:
    """Cards of one zone if a zone has enough, the fullest such zone first; else lowest positions."""
    if not shape[0, WHOLE]:
        tightest(nodes, cards, row, units, state[0][0], out)
        return
    whole_cards(nodes, cards, row, units, out)


@compiled
def whole_cards(nodes: Rows, cards: Rows, row: int, units: Rows, out: Rows) -> None:
    """As many as `out` has room for, from one zone if a zone has enough, the fullest such zone first."""
    first, zone = nodes[row, FIRST_CARD], fullest_zone(nodes, cards, row, units, len(out))
    taken = 0
    for k in range(len(units)):
        if taken < len(out) and units[k] and (zone < -1 or cards[first + k, ZONE] == zone):
            out[taken] = first + k
            taken += 1


@compiled
def fullest_zone(nodes: Rows, cards: Rows, row: int, units: Rows, count: int) -> int:
    """Of the zones with `count` cards that can take the request the one with fewest, the lowest first; -2: none."""
    first, best, fewest = nodes[row, FIRST_CARD], -2, len(units) + 1
    for k in range(len(units)):
        zone, here = cards[first + k, ZONE], 0
        for other in range(len(units)):
            here += units[other] > 0 and cards[first + other, ZONE] == zone
        if here >= count and (here < fewest or (here == fewest and zone < best)):
            best, fewest = zone, here
    return best


@compiled
def tightest(nodes: Rows, cards: Rows, row: int, units: Rows, spread: int, out: Rows) -> None:
    """The cards with least left (with spread: most), as many as `out` has room for; ties by uuid."""
    first, taken = nodes[row, FIRST_CARD], 0
    for k in range(len(units)):
        if not units[k]:
            continue
        card = first + k
        left, place = left_on(cards, card), cards[card, PLACE]
        at = taken
        while at > 0:
            there = left_on(cards, out[at - 1])
            if cards[out[at - 1], PLACE] < place if there == left else (there < left) != bool(spread):
                break
            if at < len(out):
                out[at] = out[at - 1]
            at -= 1
        if at < len(out):
            out[at] = card
            taken = min(taken + 1, len(out))


@compiled
def left_on(cards: Rows, card: int) -> int:
    """How empty a card is, compute and vram alike."""
    left = 0
    if cards[card, COMPUTE_TOTAL]:
        left += _share(cards[card, COMPUTE_FREE], 2 * cards[card, COMPUTE_TOTAL])
    if cards[card, VRAM_TOTAL]:
        left += _share(cards[card, VRAM_FREE], 2 * cards[card, VRAM_TOTAL])
    return left


@compiled
def _share(free: int, total: int) -> int:
    """`free * _FULL // total`, also where the product is beyond 64 bits."""
    if -_SAFE < free < _SAFE:
        return free * _FULL // total
    share = free // total
    rest = free - share * total
    for _ in range(_BITS):
        rest, share = 2 * rest, 2 * share
        if rest >= total:
            rest, share = rest - total, share + 1
    return share


def best_fit() -> Strategy:
    """Nodes in use, then the tightest."""
    return Strategy("best-fit", node, card, pick, (np.array([0]),))


def spread() -> Strategy:
    """Empty nodes and the loosest fit first."""
    return Strategy("spread", node, card, pick, (np.array([1]),))
