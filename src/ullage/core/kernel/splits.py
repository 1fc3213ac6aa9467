"""The partition rule: which `count` of the free cards to take so that good sets of `count` are left for others.

Bit i is the i-th of the free cards. `own[s]` is the sum of pair weights within set s. `ranks[s]` is the rank of set s
apart from weights: only a set of the `best` rank may be the answer. Sets of another size, or without a required card,
have rank -1.

Source: the best-effort policy of NVIDIA's go-gpuallocator; here ties are resolved, too.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import width_of
from ullage.core.kernel.subsets import is_before, next_of_size

_NONE = -1
"""The sum where there is no such split."""


@compiled
def sums_within(weights: Rows) -> Rows:
    """Return, per set of cards, the sum of the weights of its pairs; `weights` has a row and a column per card."""
    own = np.zeros(1 << len(weights), np.int64)
    for card in range(len(weights)):
        for others in range(1 << card):
            total = own[others]
            for other in range(card):
                if others >> other & 1:
                    total += weights[card, other]
            own[others | 1 << card] = total
    return own


@compiled
def best_of_splits(own: Rows, ranks: Rows, best: int, count: int) -> int:
    """Return the answer by all splits of the free cards into sets of `count`, for few cards.

    Remaining cards form one smaller set, which is never the answer. Of the splits with a set that may be the answer,
    the one with the highest sum over all its sets counts; of equal ones the first in lexicographic order. Of its sets
    that may be the answer, the one with the highest own sum is taken; of equal ones the first. Work: below 3^n / 2
    for n cards.
    """
    free = len(own) - 1
    plain, with_answer = _sums_of_splits(own, ranks, best, count)
    answer, rest, found = 0, free, False
    while rest:
        first = _first_of_split(own, ranks, best, count, plain, with_answer, rest, found)
        if ranks[first] == best:
            found = True
            if answer == 0 or own[first] > own[answer]:
                answer = first
        rest ^= first
    return answer


@compiled
def _sums_of_splits(own: Rows, ranks: Rows, best: int, count: int) -> tuple[Rows, Rows]:
    """Return, per set of cards, the highest sum of a split, and of a split with a set that may be the answer."""
    plain, with_answer = np.full(len(own), _NONE, np.int64), np.full(len(own), _NONE, np.int64)
    plain[0] = 0
    for cards in range(1, len(own)):
        lowest = cards & -cards
        others = more = cards ^ lowest
        while True:  # all sets that hold the lowest card
            part = more | lowest
            if _is_part(part, cards, count):
                rest = cards ^ part
                plain[cards] = max(plain[cards], own[part] + plain[rest])
                tail = plain[rest] if ranks[part] == best else with_answer[rest]
                if tail != _NONE:
                    with_answer[cards] = max(with_answer[cards], own[part] + tail)
            if more == 0:
                break
            more = (more - 1) & others
    return plain, with_answer


@compiled
def _first_of_split(
    own: Rows, ranks: Rows, best: int, count: int, plain: Rows, with_answer: Rows, cards: int, found: bool
) -> int:
    """Return the first set of the first best split of these cards; unless `found`, the split must have the answer."""
    lowest, first = cards & -cards, 0
    others = more = cards ^ lowest
    highest = plain[cards] if found else with_answer[cards]
    while True:
        part = more | lowest
        if _is_part(part, cards, count):
            free_to_choose = found or ranks[part] == best
            tail = plain[cards ^ part] if free_to_choose else with_answer[cards ^ part]
            if tail != _NONE and own[part] + tail == highest and (first == 0 or is_before(part, first)):
                first = part
        if more == 0:
            return first
        more = (more - 1) & others


@compiled
def _is_part(part: int, cards: int, count: int) -> bool:
    """Return whether a split of these cards may have this set: a full one, or the remaining cards."""
    size = width_of(part)
    return size == count or size == width_of(cards) % count


@compiled
def best_with_rest(own: Rows, ranks: Rows, best: int, count: int) -> int:
    """Return the answer for more cards by two sets only: the answer, and the best set of `count` that remains.

    If fewer than `count` cards remain, they are that set. Of equal sums the higher own sum counts, then the first
    in lexicographic order. Work: n * 2^n for n cards.
    """
    remaining = own.copy()  # of up to `count` cards their own sum, of more cards that of the best `count`
    for cards in range(len(own)):
        if width_of(cards) > count:
            remaining[cards] = 0
            rest = cards
            while rest:
                remaining[cards] = max(remaining[cards], remaining[cards & ~(rest & -rest)])
                rest &= rest - 1
    free, answer, highest = len(own) - 1, 0, _NONE
    part = (1 << count) - 1
    while part <= free:
        if ranks[part] == best:
            total = own[part] + remaining[free ^ part]
            better = total > highest or (total == highest and own[part] > own[answer])
            if better or (total == highest and own[part] == own[answer] and is_before(part, answer)):
                answer, highest = part, total
        part = next_of_size(part)
    return answer
