"""Choice of cards of a node that go together, with a memo of the answers.

An answer depends on the layout of the node, on the free and the required cards, and on the number of cards. So nodes
of the same layout share the answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.memo import slot_of
from ullage.core.kernel.nearest import choose_nearest

MOST_REMEMBERED = 62
"""The most cards of a node whose answers are remembered: a set of cards must be a number that is not negative."""

# A slot of the memo: its key, then the answer.
_LAYOUT, _FREE, _REQUIRED, _COUNT = 0, 1, 2, 3
KEY_COLUMNS = 4
_CHOSEN, _DAMAGE = 4, 5
MEMO_COLUMNS = 6

_FULL = 0.7
"""The memo is emptied when this part of its slots is in use."""


class Links(NamedTuple):
    """How the cards of a fleet are joined: the layout of each node, in which cards have the order of their index.

    `by_index` maps that order to the order of the fleet: the offset of the node's n-th card by index from the node's
    first card. `weights`, `places` and `uniform` are by layout, as `core/kernel/nearest.py` reads them. `memo` has the
    answers, `key` is scratch for a question, and `used` counts the slots in use.
    """

    layout_of: Rows
    by_index: Rows
    weights: Rows
    places: Rows
    uniform: Rows
    memo: Rows
    key: Rows
    used: Rows


@compiled
def pick_linked(links: Links, nodes: Rows, row: int, free_cards: Rows, required: Rows, out: Rows) -> int:
    """Write the flat positions of the cards to take, as many as `out` has room for, and return the damage.

    `free_cards` is above 0 for each card of the node that may be taken; there are enough. `required` is above 0 for
    those of them that must be taken, at most as many; it may be empty. The damage is the number of free cards left in
    the islands (or zones) that are taken from: 0 if none is broken.
    """
    first, total = nodes[row, c.FIRST_CARD], len(free_cards)
    order, count, at = links.by_index[first : first + total], len(out), 0
    if total > MOST_REMEMBERED:
        chosen = np.zeros(total, np.int64)
        damage = _decide(links, links.layout_of[row], order, free_cards, required, count, chosen)
        for card in range(total):
            if chosen[card]:
                out[at] = first + order[card]
                at += 1
        return damage
    slot = _recall(links, links.layout_of[row], order, free_cards, required, count)
    answer, damage = links.memo[slot, _CHOSEN], links.memo[slot, _DAMAGE]
    for card in range(total):
        if answer >> card & 1:
            out[at] = first + order[card]
            at += 1
    return int(damage)


@compiled
def _recall(links: Links, layout: int, order: Rows, free_cards: Rows, required: Rows, count: int) -> int:
    """Return the slot with the answer, which is computed at the first question."""
    memo, key, free, must = links.memo, links.key, 0, 0
    for card in range(len(order)):
        free |= int(free_cards[order[card]] > 0) << card
    for card in range(len(order) if len(required) else 0):
        must |= int(required[order[card]] > 0) << card
    key[_LAYOUT], key[_FREE], key[_REQUIRED], key[_COUNT] = layout, free, must, count
    slot = slot_of(memo, key)
    if memo[slot, 0] >= 0:
        return slot
    if links.used[0] >= _FULL * len(memo):
        memo[:] = -1
        links.used[0] = 0
        slot = slot_of(memo, key)
    links.used[0] += 1
    chosen, found = np.zeros(len(order), np.int64), 0
    memo[slot, _DAMAGE] = _decide(links, layout, order, free_cards, required, count, chosen)
    for card in range(len(order)):
        found |= int(chosen[card]) << card
    memo[slot, _CHOSEN] = found
    memo[slot, :KEY_COLUMNS] = key
    return slot


@compiled
def _decide(links: Links, layout: int, order: Rows, free_cards: Rows, required: Rows, count: int, chosen: Rows) -> int:
    """Set `chosen` for the cards to take, by index, and return the damage."""
    total = len(order)
    free = np.zeros(total, np.int64)
    for card in range(total):
        free[card] = free_cards[order[card]] > 0
        chosen[card] = len(required) > 0 and required[order[card]] > 0
    weights, places = links.weights[layout, :total, :total], links.places[layout, :, :total]
    return choose_nearest(places, weights, links.uniform[layout], free, chosen, count)
