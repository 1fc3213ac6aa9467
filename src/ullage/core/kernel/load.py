"""The functions of the strategies that score by load (`core/strategies/load.py`)."""

from __future__ import annotations

from math import floor

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled, inlined

_PENDING_SHARE = 4
_HALF = 0.5

State = tuple[Scores]
"""Weight of vram, weight of compute; 1.0 if full nodes are better, if full cards are, if a node's score is a mean."""
_VRAM, _COMPUTE, _FULL_NODES, _FULL_CARDS, _MEAN = range(5)


@inlined
def node(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: State, notes: Rows) -> float:
    """Return the mean score of the node's cards; those without the request's isolation are left out."""
    (numbers,) = state
    total = counted = 0
    for card in range(nodes[row, c.FIRST_CARD], nodes[row, c.AFTER_CARDS]):
        kind = cards[card, c.KIND] + 1
        if shape[kind, c.KEPT_APART] and not cards[card, c.MODES] & shape[kind, c.MIXED]:
            total += load(cards, card, shape, numbers, numbers[_FULL_NODES] != 0)
            counted += 1
    return float(total // counted if counted and numbers[_MEAN] != 0 else total)


@inlined
def card(cards: Rows, card: int, shape: Rows, state: State) -> float:
    (numbers,) = state
    return float(load(cards, card, shape, numbers, numbers[_FULL_CARDS] != 0))


@inlined
def pick(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: State, out: Rows) -> None:
    """Pick the cards with the highest scores; ties by uuid."""
    (numbers,), first, taken = state, nodes[row, c.FIRST_CARD], 0
    scores = np.empty(len(out), np.int64)
    for k in range(len(fits_per_card)):
        if not fits_per_card[k]:
            continue
        card = first + k
        score, place = load(cards, card, shape, numbers, numbers[_FULL_CARDS] != 0), cards[card, c.PLACE]
        at = taken
        while at > 0 and (scores[at - 1] < score or (scores[at - 1] == score and cards[out[at - 1], c.PLACE] > place)):
            if at < len(out):
                out[at], scores[at] = out[at - 1], scores[at - 1]
            at -= 1
        if at < len(out):
            out[at], scores[at] = card, score
            taken = min(taken + 1, len(out))


@compiled
def load(cards: Rows, card: int, shape: Rows, numbers: Scores, full: bool) -> int:
    """Return the score of one card as it is now; the fuller is better, or the emptier."""
    compute, vram = cards[card, c.COMPUTE_TOTAL], cards[card, c.VRAM_TOTAL]
    if not compute or not vram:
        return 0
    compute_free = max(0, cards[card, c.COMPUTE_FREE]) / compute * 100
    vram_free = max(0, cards[card, c.VRAM_FREE]) / vram * 100
    if full:
        compute_free, vram_free = 100 - compute_free, 100 - vram_free
    exact = vram_free * numbers[_VRAM] + compute_free * numbers[_COMPUTE]
    whole = floor(exact)
    score = min(100, max(0, whole + (exact - whole >= _HALF)))
    return int(score // _PENDING_SHARE if shape[cards[card, c.KIND] + 1, c.PENDING] else score)
