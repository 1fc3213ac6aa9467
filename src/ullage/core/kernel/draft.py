"""Several units of one request at once: each is chosen with those before it charged; at the end all rows are as before.

Charges here follow `Fleet`; what the rows of a node and its cards do not say (who holds what) is not needed to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ullage.core.kernel.charge import follow_free
from ullage.core.kernel.columns import (
    COMPUTE,
    COMPUTE_FREE,
    COMPUTE_TOTAL,
    COUNT,
    CPU,
    CPU_FREE,
    GPU_FREE,
    KIND,
    MEMORY,
    MEMORY_FREE,
    MODES,
    RUNS,
    SLOTS_FREE,
    USERS,
    VRAM,
    VRAM_FREE,
    VRAM_TOTAL,
    WHOLE,
    Rows,
    Scores,
)
from ullage.core.kernel.compiled import code_of, compiled
from ullage.core.kernel.room import look_at_cards
from ullage.core.kernel.table import score
from ullage.core.kernel.tree import enter, winner

LARGEST_SIZE = 62
"""The largest number of cards that has a bit of its own in `RUNS`."""


class Drafts(NamedTuple):
    """What is compiled for the functions of one strategy.

    `several` writes the node, the cards and the score of each unit until one finds no room; how many were placed.
    """

    several: Callable[..., int]


@compiled
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


@cache
def drafts_over(node: Callable[..., Any], pick: Callable[..., Any]) -> Drafts:
    """Compile the loops around a strategy's functions, for strategies that select the first best and follow nothing."""
    key = code_of(node, pick, score, charge_unit, look_at_cards, enter, winner)

    @compiled
    def several(
        nodes: Rows,
        cards: Rows,
        shape: Rows,
        space: Rows,
        said: Rows,
        tree: Scores,
        state: Any,
        mode: int,
        at_row: Rows,
        at_cards: Rows,
        at_score: Scores,
    ) -> int:
        key  # noqa: B018  part of the cache key, see `code_of`
        old_nodes = np.empty((len(at_row), nodes.shape[1]), np.int64)
        old_cards = np.empty((len(at_row), at_cards.shape[1], cards.shape[1]), np.int64)
        placed = 0
        while placed < len(at_row):
            row = winner(tree)
            if row < 0:
                break
            chosen = at_cards[placed]
            at_row[placed], at_score[placed] = row, tree[len(tree) // 2 + row]
            if shape[0, COUNT]:
                pick(nodes, cards, row, shape, look_at_cards(nodes, cards, row, shape, space), state, chosen)
            old_nodes[placed] = nodes[row]
            for k in range(len(chosen)):
                old_cards[placed, k] = cards[chosen[k]]
            charge_unit(nodes, cards, row, shape, mode, chosen)
            placed += 1
            enter(tree, row, score(node, nodes, cards, row, shape, space, said, state))
        for unit in range(placed - 1, -1, -1):
            nodes[at_row[unit]] = old_nodes[unit]
            for k in range(at_cards.shape[1]):
                cards[at_cards[unit, k]] = old_cards[unit, k]
        return placed

    return Drafts(several)
