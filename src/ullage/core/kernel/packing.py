"""The scores FGD was published against, as its simulator computes them: integers 0..100, larger is better.

Source: the open simulator of "Beware of Fragmentation" (USENIX ATC'23). Truncation is part of them.
Ties go to the first node of a random order; a part of a card goes on the best-fitting card, except
with random placement, where every card that fits is as likely.
"""

from __future__ import annotations

from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.fragmentation import best_fit_card
from ullage.core.kernel.task_class import WHOLE, Cards

_LARGEST_CPU = 128_000
"""Milli CPU of the largest node of the published cluster, by which CPU is divided."""

_LARGEST_CARDS = 8_000
"""Thousandths of cards of the largest node of the published cluster, by which cards are divided."""


@compiled
def idle_total(shares: Cards) -> int:
    """Return the free thousandths of all cards together."""
    total = 0
    for free in shares:
        total += free
    return total


@compiled
def best_fit(cpu_free: int, shares: Cards, cpu: int, share: int, cards: int) -> int:
    """Score a node higher the less CPU and cards it has left, each with weight one half."""
    left_cpu = float(cpu_free - cpu) / _LARGEST_CPU * 0.5
    left_cards = float(idle_total(shares) - share * cards) / _LARGEST_CARDS * 0.5
    return int((1.0 - (left_cpu + left_cards)) * 100.0)


@compiled
def dot_product(cpu_free: int, shares: Cards, cpu: int, share: int, cards: int) -> int:
    """Score a node higher the smaller the product of what is free and what is asked (Tetris, SIGCOMM'14)."""
    product = float(cpu_free) / _LARGEST_CPU * (float(cpu) / _LARGEST_CPU)
    product += float(idle_total(shares)) / _LARGEST_CARDS * (float(share * cards) / _LARGEST_CARDS)
    return int(100.0 * (1.0 - product / 2.0))


@compiled
def clustering(shares: Cards, kinds: int, kind: int) -> int:
    """Rank nodes that run tasks of this kind only first, then those that also run it, then empty ones, then the rest.

    A kind is a part of a card (0) or the number of whole cards (1..62); `kinds` is the bit mask of
    the kinds that run on the node. A task without cards has kind -1 and scores 0 everywhere.
    """
    if kind < 0:
        return 0
    filled = 25 * (_LARGEST_CARDS - idle_total(shares)) // _LARGEST_CARDS
    if kinds == 0:
        return filled + 25
    if not (kinds >> kind) & 1:
        return filled
    return filled + (75 if kinds == (1 << kind) else 50)


@compiled
def packing(shares: Cards, share: int, cards: int) -> int:
    """Rank cards in use first, the fullest highest (90..100), then idle cards of a node in use, then idle nodes.

    A task without cards scores 0 everywhere.
    """
    if cards == 0:
        return 0
    idle = 0
    for free in shares:
        if free == WHOLE:
            idle += 1
    if idle == shares.shape[0]:
        return max(33 - idle, idle)
    if share == WHOLE:
        return max(50 - cards, 33)
    card = best_fit_card(shares, share)
    if shares[card] == WHOLE:
        return 49
    return int(100 - shares[card] // 10 // 10)


@compiled
def random_card(shares: Cards, share: int, draw: int) -> int:
    """Return one of the cards that have `share` left, each as likely for a random `draw` >= 0; -1 if none."""
    fitting = 0
    for free in shares:
        if free >= share:
            fitting += 1
    if fitting == 0:
        return -1
    nth = draw % fitting
    for card in range(shares.shape[0]):
        if shares[card] >= share:
            if nth == 0:
                return card
            nth -= 1
    return -1
