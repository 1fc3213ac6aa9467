"""Which of the free cards of a node go together: by their links, else by zone and PCIe switch.

The criteria in order: first the fewest cards of unknown zone. Then, where the pair weights of the free cards differ
(they are *linked*):

1. the fewest islands;
2. the fewest free cards in these islands: the smallest that fit, so that wide room stays whole;
3. of the sets that are best by 1 and 2, the one that the partition rule over all free cards picks
   (`core/kernel/splits.py`).

Where all weights are equal, or all cards of the node have the same NVLinks between them (NVSwitch): the fewest
zones, the fewest free cards in these zones, the fewest switches, the fewest free cards behind these switches, the
first cards. If one linked card is asked for, it is the one with the lowest sum of weights to the other free cards,
so that good groups stay whole. Above 16 free cards not all sets are tried (`core/kernel/levels.py`).

That is the rule `NEAREST`. A request may ask for the rule `CONNECTED`: the highest sum of pair weights, or for one card
the lowest sum to the other free cards; zones and NVSwitches come second. `PARTITION` predicts NVIDIA's device plugin:
the partition rule alone, and the first card if one is asked for. `ISLANDS` is `NEAREST`, but the islands come before
cards of unknown zone.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.connected import take_connected
from ullage.core.kernel.levels import fill_by_level
from ullage.core.kernel.masks import width_of
from ullage.core.kernel.splits import best_of_splits, best_with_rest, sums_within
from ullage.core.kernel.subsets import is_before, next_of_size

ISLAND, ZONE, SWITCH = 0, 1, 2
"""Levels, a row each, with the first card of its group for each card. Cards of one group of `ZONE` have equal zones."""
ZONES = 3
"""The zones of each card as bits, numbered from 0 on this node; 0: unknown."""
BEHIND_SWITCH = 4
"""The resources of which a device is behind the switch of each card, as bits by their number on the board."""
PLACES = 5

MOST_RESOURCES = 62
"""Resources from this number on have no bit: of none of them a device is known to be behind a switch."""

NEAREST, CONNECTED, PARTITION, ISLANDS = 0, 1, 2, 3
"""Rules, by number."""

MOST_SPLIT, MOST_TRIED = 8, 16
"""The most free cards for which all splits are tried, and the most for which all sets are."""

_BASE = 128
"""A rank is a number whose digits in this base count cards, groups or zones, the most important first."""


@compiled
def choose_nearest(places: Rows, weights: Rows, uniform: int, free: Rows, taken: Rows, count: int, rule: int) -> int:
    """Set `taken`, which has the required cards, to `count` of the free cards, and return the damage.

    Cards are in the order of their index; `places`, `weights` and `uniform` are those of a layout
    (`core/topology/links.py`). The damage is the number of free cards left in the islands (if the cards are not
    linked: zones) that are taken from: 0 if none is broken.
    """
    cards, required = np.nonzero(free)[0], 0
    for card in cards:
        required += taken[card]
    if len(cards) == count:
        taken[:] = free
        return 0
    linked = (rule != NEAREST or not uniform) and have_different_links(weights, cards)
    if required < count:
        if rule == PARTITION and (not linked or count == 1):
            _take_first(cards, taken, count - required)
        elif linked and count == 1:
            _take_one(places, weights, cards, taken, rule)
        elif len(cards) <= MOST_TRIED:
            _take_best_set(places, weights, linked, cards, taken, count, rule)
        elif rule == CONNECTED and linked:
            take_connected(weights, cards, taken, count)
        else:
            _take_by_level(places, linked, free, taken, count - required, rule)
    return _left_in_groups(places[ISLAND if linked else ZONE], free, taken)


@compiled
def have_different_links(weights: Rows, cards: Rows) -> bool:
    """Return whether pairs of these cards have different weights."""
    known = -1
    for a in range(1, len(cards)):
        for b in range(a):
            weight = weights[cards[a], cards[b]]
            if known >= 0 and weight != known:
                return True
            known = weight
    return False


@compiled
def _left_in_groups(group_of: Rows, free: Rows, taken: Rows) -> int:
    opened = np.zeros_like(free)
    for card in range(len(free)):
        opened[group_of[card]] |= taken[card]
    left = 0
    for card in range(len(free)):
        left += free[card] and not taken[card] and opened[group_of[card]]
    return left


@compiled
def _take_first(cards: Rows, taken: Rows, count: int) -> None:
    for card in cards:
        if count > 0 and not taken[card]:
            taken[card] = 1
            count -= 1


@compiled
def _take_one(places: Rows, weights: Rows, cards: Rows, taken: Rows, rule: int) -> None:
    best, lowest, known = -1, 0, False
    for card in cards:
        total = 0
        for other in cards:
            if other != card:
                total += weights[card, other]
        has_zone = rule == CONNECTED or places[ZONES, card] != 0
        if best < 0 or has_zone > known or (has_zone == known and total < lowest):
            best, lowest, known = card, total, has_zone
    taken[best] = 1


@compiled
def _take_by_level(places: Rows, linked: bool, free: Rows, taken: Rows, count: int, rule: int) -> None:
    levels = places[(ISLAND if linked else ZONE) : SWITCH + 1]
    known, more = np.zeros_like(free), 0
    for card in range(len(free)):
        known[card] = free[card] and (rule == ISLANDS or places[ZONES, card] != 0)
        more += known[card] and not taken[card]
    more = min(more, count)
    fill_by_level(levels, known, taken, more)
    fill_by_level(levels, free, taken, count - more)


@compiled
def _take_best_set(places: Rows, weights: Rows, linked: bool, cards: Rows, taken: Rows, count: int, rule: int) -> None:
    """Try all sets of `count` free cards. In a set, bit i is the i-th free card."""
    size = len(cards)
    required = 0
    for at in range(size):
        required |= int(taken[cards[at]]) << at
    own, most = _sums_between(weights, cards) if linked else np.zeros(0, np.int64), -1
    if linked and rule == CONNECTED:
        most = _highest_sum(own, required, count)
    zones = places[ZONES][cards]
    groups = _group_sets(places, cards)
    ranks, best, first = np.full(1 << size, -1, np.int64), -1, 0
    chosen = (1 << count) - 1
    while chosen < 1 << size:
        if chosen & required == required and (most < 0 or own[chosen] == most):
            ranks[chosen] = _rank_of(groups, zones, linked, chosen, rule)
            if best < 0 or ranks[chosen] < best or (ranks[chosen] == best and is_before(chosen, first)):
                best, first = ranks[chosen], chosen
        chosen = next_of_size(chosen)
    if linked:
        if size <= MOST_SPLIT:
            first = best_of_splits(own, ranks, best, count)
        else:
            first = best_with_rest(own, ranks, best, count)
    for at in range(size):
        taken[cards[at]] = first >> at & 1


@compiled
def _sums_between(weights: Rows, cards: Rows) -> Rows:
    """Return the sum of the pair weights within each set of these cards."""
    between = np.zeros((len(cards), len(cards)), np.int64)
    for a in range(len(cards)):
        for b in range(len(cards)):
            between[a, b] = weights[cards[a], cards[b]]
    return sums_within(between)


@compiled
def _highest_sum(own: Rows, required: int, count: int) -> int:
    """Return the highest sum of a set of `count` cards that has the required ones."""
    most, chosen = -1, (1 << count) - 1
    while chosen < len(own):
        if chosen & required == required:
            most = max(most, own[chosen])
        chosen = next_of_size(chosen)
    return int(most)


@compiled
def _group_sets(places: Rows, cards: Rows) -> Rows:
    """Return, per level and free card, the set of free cards in its group."""
    sets = np.zeros((SWITCH + 1, len(cards)), np.int64)
    for level in range(SWITCH + 1):
        for at in range(len(cards)):
            for other in range(len(cards)):
                sets[level, at] |= int(places[level, cards[at]] == places[level, cards[other]]) << other
    return sets


@compiled
def _rank_of(groups: Rows, zones: Rows, linked: bool, chosen: int, rule: int) -> int:
    """Return the rank of a set of cards apart from its weights; lower is better."""
    if rule == PARTITION:
        return 0
    if linked and rule == ISLANDS:
        return _touched(groups[ISLAND], chosen)
    unknown = span = 0
    for card in range(len(zones)):
        if chosen >> card & 1:
            unknown += zones[card] == 0
            span |= zones[card]
    if linked:
        return unknown * _BASE**2 + _touched(groups[ISLAND], chosen)
    room = _touched(groups[ZONE], chosen) % _BASE
    return ((unknown * _BASE + width_of(span)) * _BASE + room) * _BASE**2 + _touched(groups[SWITCH], chosen)


@compiled
def _touched(group_of: Rows, chosen: int) -> int:
    """Return two digits: the number of groups that a set of cards takes from, and of free cards in these groups."""
    groups = touched = 0
    for card in range(len(group_of)):
        if chosen >> card & 1 and not touched >> card & 1:
            touched |= group_of[card]
            groups += 1
    return groups * _BASE + width_of(touched)
