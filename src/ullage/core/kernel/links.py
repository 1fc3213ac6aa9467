"""Picks cards of a node that go together, and remembers each answer.

An answer depends only on the layout of the node, on which cards are free and which of them are required, and on
how many are asked for. So nodes of the same layout share the answers.
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
"""The most cards of a node whose answers are remembered: a set of its cards must be a number of 0 or more."""

# A slot of the memo: its key, then the answer.
_LAYOUT, _FREE, _REQUIRED, _COUNT = 0, 1, 2, 3
KEY_COLUMNS = 4
_CHOSEN, _DAMAGE = 4, 5
MEMO_COLUMNS = 6

_FULL = 0.7
"""The memo is emptied when this part of its slots is in use."""


class Links(NamedTuple):
    """How the cards of a fleet are joined: the layout of each node, in which cards are in the order of their index.

    `by_index` leads from that order to the order of the fleet: it has the offset of the node's n-th card by index
    from the node's first card. `weights`, `places` and `uniform` are by layout, as `core/kernel/nearest.py` reads
    them. `memo` has the answers; `key` is room for the question, and `taken` counts the slots in use.
    """

    layout_of: Rows
    by_index: Rows
    weights: Rows
    places: Rows
    uniform: Rows
    memo: Rows
    key: Rows
    taken: Rows


@compiled
def pick_linked(links: Links, nodes: Rows, row: int, units: Rows, required: Rows, out: Rows) -> int:
    """Write the flat positions of the cards to take, as many as `out` has room for, and return the damage.

    `units` is above 0 for each card of the node that may be taken; there are enough. `required` is above 0 for
    those that must be taken, all of which may be, and which are not too many; it may be empty. The damage is the
    number of free cards left in the islands (or zones) that are taken from: 0 if none is broken.
    """
    first, total = nodes[row, c.FIRST_CARD], len(units)
    order, count, at = links.by_index[first : first + total], len(out), 0
    if total > MOST_REMEMBERED:
        chosen = np.zeros(total, np.int64)
        damage = _decide(links, links.layout_of[row], order, units, required, count, chosen)
        for card in range(total):
            if chosen[card]:
                out[at] = first + order[card]
                at += 1
        return damage
    slot = _recall(links, links.layout_of[row], order, units, required, count)
    known, damage = links.memo[slot, _CHOSEN], links.memo[slot, _DAMAGE]
    for card in range(total):
        if known >> card & 1:
            out[at] = first + order[card]
            at += 1
    return int(damage)


@compiled
def _recall(links: Links, layout: int, order: Rows, units: Rows, required: Rows, count: int) -> int:
    """The slot with the answer, which is found first if nobody has asked before."""
    memo, key, free, must = links.memo, links.key, 0, 0
    for card in range(len(order)):
        free |= int(units[order[card]] > 0) << card
    for card in range(len(order) if len(required) else 0):
        must |= int(required[order[card]] > 0) << card
    key[_LAYOUT], key[_FREE], key[_REQUIRED], key[_COUNT] = layout, free, must, count
    slot = slot_of(memo, key)
    if memo[slot, 0] >= 0:
        return slot
    if links.taken[0] >= _FULL * len(memo):
        memo[:] = -1
        links.taken[0] = 0
        slot = slot_of(memo, key)
    links.taken[0] += 1
    chosen, found = np.zeros(len(order), np.int64), 0
    memo[slot, _DAMAGE] = _decide(links, layout, order, units, required, count, chosen)
    for card in range(len(order)):
        found |= int(chosen[card]) << card
    memo[slot, _CHOSEN] = found
    memo[slot, :KEY_COLUMNS] = key
    return slot


@compiled
def _decide(links: Links, layout: int, order: Rows, units: Rows, required: Rows, count: int, chosen: Rows) -> int:
    """Set `chosen` for the cards to take, by index, and return the damage."""
    total = len(order)
    free = np.zeros(total, np.int64)
    for card in range(total):
        free[card] = units[order[card]] > 0
        chosen[card] = len(required) > 0 and required[order[card]] > 0
    weights, places = links.weights[layout, :total, :total], links.places[layout, :, :total]
    return choose_nearest(places, weights, links.uniform[layout], free, chosen, count)
