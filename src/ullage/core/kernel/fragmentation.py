"""Fragmentation of a node for a workload, and its gradient: the score of FGD.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, sections 3 and 4. All amounts of
cards are in thousandths of a card.
"""

from __future__ import annotations

import math

import numpy as np

from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.task_class import CARDS, CPU, MODELS, SHARE, WHOLE, Cards, Classes, Popularity


@compiled
def fragmentation(  # noqa: C901, PLR0912 - one branch per reason of the published definition
    cpu_free: int, shares: Cards, model: int, classes: Classes, popularity: Popularity
) -> float:
    """Return the idle thousandths of the node's cards that a task drawn from the workload could not use.

    A class that cannot run here, and one without cards, counts all that is idle; a class that can counts the cards
    with less than its share. There is a sum per reason, and the sums are added at the end, as in the published
    simulator: its scores are truncated, so the last bit of a sum matters.
    """
    idle = 0
    for free in shares:
        idle += free
    lack_both = lack_gpu = lack_cpu = without_cards = without_cards_or_cpu = no_access = 0.0
    for row in range(classes.shape[0]):
        task = classes[row]
        weight = popularity[row]
        cpu_fits = cpu_free >= task[CPU]
        if task[CARDS] == 0:
            if cpu_fits:
                without_cards += weight * idle
            else:
                without_cards_or_cpu += weight * idle
            continue
        if not (task[MODELS] >> model) & 1:
            no_access += weight * idle
            continue
        enough = unused = 0
        for free in shares:
            if free >= task[SHARE]:
                enough += 1
            else:
                unused += free
        if enough >= task[CARDS]:
            if cpu_fits:
                lack_gpu += weight * unused
            else:
                lack_cpu += weight * idle
        elif cpu_fits:
            lack_gpu += weight * idle
        else:
            lack_both += weight * idle
    return lack_both + lack_gpu + lack_cpu + without_cards + without_cards_or_cpu + no_access


@compiled
def best_fit_card(shares: Cards, share: int) -> int:
    """Return the card with the least free share that has `share` left, the first of equal ones; -1 if none."""
    best = -1
    for card in range(shares.shape[0]):
        if shares[card] >= share and (best < 0 or shares[card] < shares[best]):
            best = card
    return best


@compiled
def take_whole(shares: Cards, cards: int) -> None:
    """Take the first `cards` idle cards; there are enough."""
    for card in range(shares.shape[0]):
        if cards == 0:
            return
        if shares[card] == WHOLE:
            shares[card] = 0
            cards -= 1


@compiled
def fgd(
    cpu_free: int, shares: Cards, model: int, cpu: int, share: int, cards: int, classes: Classes, popularity: Popularity
) -> tuple[float, int]:
    """Return how much fragmentation grows if the task is placed here (less is better), and the card for a part.

    A part tries every card (the first of equal ones); whole cards are the first idle ones, and the card is then -1.
    The task must fit. The growth is not truncated, so the caller resolves ties.
    """
    before = fragmentation(cpu_free, shares, model, classes, popularity)
    left = shares.copy()
    if share == WHOLE or cards == 0:
        take_whole(left, cards)
        return fragmentation(cpu_free - cpu, left, model, classes, popularity) - before, -1
    best, chosen = np.inf, -1
    for card in range(shares.shape[0]):
        if shares[card] < share:
            continue
        left[card] -= share
        growth = fragmentation(cpu_free - cpu, left, model, classes, popularity) - before
        left[card] += share
        if growth < best:
            best, chosen = growth, card
    return best, chosen


@compiled
def published_score(growth: float) -> int:
    """Return the score of the published simulator for a growth of fragmentation: 0..100, larger is better, truncated.

    The truncation is part of the published result: growths that differ by less than about 40 thousandths of a card
    tie, and ties go to the first node of a random order.
    """
    return int(100.0 / (1.0 + math.exp(growth / 1000.0)))


@compiled
def fgd_published(
    cpu_free: int, shares: Cards, model: int, cpu: int, share: int, cards: int, classes: Classes, popularity: Popularity
) -> tuple[int, int]:
    """Return the published score of the node, and the card for a part: the first with the best truncated score."""
    before = fragmentation(cpu_free, shares, model, classes, popularity)
    left = shares.copy()
    if share == WHOLE or cards == 0:
        take_whole(left, cards)
        return published_score(fragmentation(cpu_free - cpu, left, model, classes, popularity) - before), -1
    best, chosen = -1, -1
    for card in range(shares.shape[0]):
        if shares[card] < share:
            continue
        left[card] -= share
        score = published_score(fragmentation(cpu_free - cpu, left, model, classes, popularity) - before)
        left[card] += share
        if score > best:
            best, chosen = score, card
    return best, chosen
