"""Choice of cards of a node that go together, with a memo of the answers.

An answer depends on the layout of the node, on the free and the required cards, on the number of cards, and on the
rule. So nodes of the same layout share the answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.memo import slot_of
from ullage.core.kernel.nearest import BEHIND_SWITCH, ISLAND, choose_nearest, have_different_links

MOST_REMEMBERED = 62
"""The most cards of a node whose answers are remembered: a set of cards must be a number that is not negative."""

# A slot of the memo: its key, then the answer.
_LAYOUT, _FREE, _REQUIRED, _COUNT, _RULE = 0, 1, 2, 3, 4
KEY_COLUMNS = 5
_CHOSEN, _DAMAGE = 5, 6
MEMO_COLUMNS = 7

UNLINKED = 2
"""Of a layout in `uniform`: no pair has a weight, which decides as little as the same NVLinks everywhere (1)."""

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


class Question(NamedTuple):
    """Which of the free cards of a node to take: the layout, the order of its cards by index, and what is asked."""

    layout: int
    order: Rows
    free_cards: Rows
    required: Rows
    amount: int
    rule: int


@compiled
def pick_linked(links: Links, nodes: Rows, row: int, free_cards: Rows, required: Rows, out: Rows, rule: int) -> int:
    """Write the flat positions of the cards to take, as many as `out` has room for, and return the damage.

    `free_cards` is above 0 for each card of the node that may be taken; there are enough. `required` is above 0 for
    those of them that must be taken, at most as many; it may be empty. `rule` is one of `core/kernel/nearest.py`. The
    damage is the number of free cards left in the islands (or zones) that are taken from: 0 if none is broken.
    """
    first, total = nodes[row, c.FIRST_CARD], len(free_cards)
    order, at = links.by_index[first : first + total], 0
    asked = Question(links.layout_of[row], order, free_cards, required, len(out), rule)
    if total > MOST_REMEMBERED:
        chosen = np.zeros(total, np.int64)
        damage = _decide(links, asked, chosen)
        for card in range(total):
            if chosen[card]:
                out[at] = first + order[card]
                at += 1
        return damage
    slot = _recall(links, asked)
    answer, damage = links.memo[slot, _CHOSEN], links.memo[slot, _DAMAGE]
    for card in range(total):
        if answer >> card & 1:
            out[at] = first + order[card]
            at += 1
    return int(damage)


@compiled
def keep_worst_connected(links: Links, nodes: Rows, row: int, marks: Rows) -> None:
    """Of the marked cards of a node, keep those with the lowest sum of pair weights to the others."""
    order, lowest = _order_of(links, nodes, row, len(marks)), -1
    weights = links.weights[links.layout_of[row]]
    sums = np.zeros(len(marks), np.int64)
    for a in range(len(marks)):
        for b in range(len(marks)):
            if a != b and marks[order[a]] and marks[order[b]]:
                sums[order[a]] += weights[a, b]
        if marks[order[a]] and (lowest < 0 or sums[order[a]] < lowest):
            lowest = sums[order[a]]
    for k in range(len(marks)):
        marks[k] = marks[k] != 0 and sums[k] == lowest


@compiled
def links_matter(links: Links, nodes: Rows, row: int, marks: Rows) -> bool:
    """Return whether pairs of the marked cards of a node have different weights."""
    order, marked = _order_of(links, nodes, row, len(marks)), np.zeros(len(marks), np.int64)
    for card in range(len(marks)):
        marked[card] = marks[order[card]] != 0
    return have_different_links(links.weights[links.layout_of[row]], np.nonzero(marked)[0])


@compiled
def mean_weight(links: Links, nodes: Rows, row: int, marks: Rows, least: int) -> int:
    """Return the mean weight of the pairs of cards that are marked with at least this number; 0 for one card."""
    if links.uniform[links.layout_of[row]] == UNLINKED:
        return 0
    order, total, pairs = _order_of(links, nodes, row, len(marks)), 0, 0
    weights = links.weights[links.layout_of[row]]
    for a in range(len(marks)):
        if marks[order[a]] >= least:
            for b in range(a):
                if marks[order[b]] >= least:
                    total += weights[a, b]
                    pairs += 1
    return int(total // max(1, pairs))


@compiled
def keep_behind_switch(links: Links, nodes: Rows, row: int, marks: Rows, resources: int) -> tuple[int, int]:
    """Unmark the marked cards that are not behind a switch with each of these resources, as bits.

    Return how many stay marked, and how many do not.
    """
    order, stay, gone = _order_of(links, nodes, row, len(marks)), 0, 0
    for card in range(len(marks)):
        if marks[order[card]]:
            behind = links.places[links.layout_of[row], BEHIND_SWITCH, card] & resources == resources
            marks[order[card]] *= behind
            stay += behind
            gone += not behind
    return stay, gone


@compiled
def islands_of(links: Links, nodes: Rows, row: int, marks: Rows, least: int) -> int:
    """Return the number of islands of the cards that are marked with at least this number."""
    order, islands = _order_of(links, nodes, row, len(marks)), np.zeros(len(marks), np.int64)
    for card in range(len(marks)):
        if marks[order[card]] >= least:
            islands[links.places[links.layout_of[row], ISLAND, card]] = 1
    return int(islands.sum())


@compiled
def _order_of(links: Links, nodes: Rows, row: int, total: int) -> Rows:
    first = nodes[row, c.FIRST_CARD]
    return links.by_index[first : first + total]


@compiled
def _recall(links: Links, asked: Question) -> int:
    """Return the slot with the answer, which is computed at the first question."""
    memo, key, order, free, must = links.memo, links.key, asked.order, 0, 0
    for card in range(len(order)):
        free |= int(asked.free_cards[order[card]] > 0) << card
    for card in range(len(order) if len(asked.required) else 0):
        must |= int(asked.required[order[card]] > 0) << card
    key[_LAYOUT], key[_FREE], key[_REQUIRED], key[_COUNT], key[_RULE] = (
        asked.layout,
        free,
        must,
        asked.amount,
        asked.rule,
    )
    slot = slot_of(memo, key)
    if memo[slot, 0] >= 0:
        return slot
    if links.used[0] >= _FULL * len(memo):
        memo[:] = -1
        links.used[0] = 0
        slot = slot_of(memo, key)
    links.used[0] += 1
    chosen, found = np.zeros(len(order), np.int64), 0
    memo[slot, _DAMAGE] = _decide(links, asked, chosen)
    for card in range(len(order)):
        found |= int(chosen[card]) << card
    memo[slot, _CHOSEN] = found
    memo[slot, :KEY_COLUMNS] = key
    return slot


@compiled
def _decide(links: Links, asked: Question, chosen: Rows) -> int:
    """Set `chosen` for the cards to take, by index, and return the damage."""
    order, required, total = asked.order, asked.required, len(asked.order)
    free = np.zeros(total, np.int64)
    for card in range(total):
        free[card] = asked.free_cards[order[card]] > 0
        chosen[card] = len(required) > 0 and required[order[card]] > 0
    weights, places = links.weights[asked.layout, :total, :total], links.places[asked.layout, :, :total]
    return choose_nearest(places, weights, links.uniform[asked.layout], free, chosen, asked.amount, asked.rule)
