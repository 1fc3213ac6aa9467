"""Several units of one request at once: each is chosen with those before it charged; then all rows are restored.

Charges here are those of `Fleet`. What only the ledger knows (who holds what) is not needed to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.board import supplies_in
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.table import Query, charge_with_zones, look_at_zones, score
from ullage.core.kernel.tree import enter, winner


class Drafts(NamedTuple):
    """The compiled loop of one strategy.

    `several` writes the node, the cards and the score of each unit until one finds no room, and returns their number.
    """

    several: Callable[..., int]


@cache
def drafts_over(node: Callable[..., Any], pick: Callable[..., Any]) -> Drafts:
    """Compile the loop around a strategy's functions, for strategies that select the first best and follow nothing."""

    @compiled
    def several(
        nodes: Rows,
        cards: Rows,
        shape: Rows,
        scratch: Rows,
        arena: Rows,
        node_state: Rows,
        tree: Scores,
        state: Any,
        mode: int,
        at_row: Rows,
        at_cards: Rows,
        at_score: Scores,
    ) -> int:
        query = Query(nodes, cards, shape, scratch, arena)
        old_nodes = np.empty((len(at_row), nodes.shape[1]), np.int64)
        old_cards = np.empty((len(at_row), at_cards.shape[1], cards.shape[1]), np.int64)
        placed, free = 0, supplies_in(arena)[: len(supplies_in(arena)) * (shape[0, c.NEEDS] > 0), b.FREE].copy()
        while placed < len(at_row):
            row = winner(tree)
            if row < 0:
                break
            chosen = at_cards[placed]
            at_row[placed], at_score[placed] = row, tree[len(tree) // 2 + row]
            if shape[0, c.COUNT] or shape[0, c.NEEDS]:
                pick(nodes, cards, row, shape, look_at_zones(query, row), state, chosen)
            old_nodes[placed] = nodes[row]
            for k in range(len(chosen)):
                old_cards[placed, k] = cards[chosen[k]]
            charge_with_zones(query, row, mode, chosen)
            placed += 1
            enter(tree, row, score(node, query, row, node_state, state))
        for unit in range(placed - 1, -1, -1):
            nodes[at_row[unit]] = old_nodes[unit]
            for k in range(at_cards.shape[1]):
                cards[at_cards[unit, k]] = old_cards[unit, k]
        if shape[0, c.NEEDS]:
            supplies_in(arena)[:, b.FREE] = free
        return placed

    return Drafts(several)
