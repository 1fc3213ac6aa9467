"""The best connected cards of a large node, found by growth and exchange, without trying all sets.

A set grows from the required cards, or from each card in turn, by the card with the highest sum of pair weights to
it. Then one card is exchanged for another as long as that raises the sum. The best set counts, of equal ones the first.
"""

from __future__ import annotations

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled


@compiled
def take_connected(weights: Rows, cards: Rows, taken: Rows, count: int) -> None:
    """Set `taken`, which has the required cards, to `count` of these cards; fewer are required."""
    required, best, highest = taken.copy(), taken.copy(), -1
    grown = required.sum() > 0
    for seed in cards:
        chosen = required.copy()
        chosen[seed] = 1
        total = _improve(weights, cards, required, chosen, _grow(weights, cards, chosen, count))
        if total > highest:
            best, highest = chosen, total
        if grown and required[seed]:
            break
    taken[:] = best


@compiled
def _grow(weights: Rows, cards: Rows, chosen: Rows, count: int) -> int:
    """Add cards until there are `count`. Return the sum of the weights within the set."""
    total, here = 0, 0
    for card in cards:
        if chosen[card]:
            here += 1
            total += _sum_to(weights, cards, chosen, card)
    total //= 2
    while here < count:
        best, highest = -1, -1
        for card in cards:
            if not chosen[card]:
                gained = _sum_to(weights, cards, chosen, card)
                if gained > highest:
                    best, highest = card, gained
        chosen[best] = 1
        here += 1
        total += highest
    return total


@compiled
def _improve(weights: Rows, cards: Rows, required: Rows, chosen: Rows, total: int) -> int:
    """Exchange single cards, each time with the highest gain, while there is one. Return the sum then."""
    while True:
        gain, gone, come = 0, -1, -1
        for leaving in cards:
            if not chosen[leaving] or required[leaving]:
                continue
            chosen[leaving] = 0
            lost = _sum_to(weights, cards, chosen, leaving)
            for entering in cards:
                if not chosen[entering] and entering != leaving:
                    more = _sum_to(weights, cards, chosen, entering) - lost
                    if more > gain:
                        gain, gone, come = more, leaving, entering
            chosen[leaving] = 1
        if gone < 0:
            return total
        chosen[gone], chosen[come] = 0, 1
        total += gain


@compiled
def _sum_to(weights: Rows, cards: Rows, chosen: Rows, card: int) -> int:
    """Return the sum of the weights between a card and the chosen others."""
    total = 0
    for other in cards:
        if chosen[other] and other != card:
            total += weights[card, other]
    return total
