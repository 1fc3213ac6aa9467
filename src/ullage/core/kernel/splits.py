"""The partition rule: which `count` of the free cards leave the best sets of `count` to those who come next.

Cards are bits 0.. of the free cards only, in their order. `own[s]` is the sum of pair weights within set s.
`ranks[s]` says how good set s is for what comes before weights: only sets of the `best` rank may be the
answer; sets of another size, or without a required card, have rank -1.

Source: the best-effort policy of NVIDIA's go-gpuallocator, with its ties settled.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import width_of
from ullage.core.kernel.subsets import is_before, next_alike

_NONE = -1
"""The sum of a split that there is not."""


@compiled
def sums_within(weights: Rows) -> Rows:
    """Per set of cards the sum of the weights of its pairs; `weights` has a row and a column per card."""
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
    """The answer by all splits of the free cards into sets of `count`, for few cards.

    What does not make a full set stays together in one that is never the answer. Of the splits that have a
    set which may be the answer, the one whose sets have the highest sum counts, the first in lexicographic
    order among equals; of its sets that may be the answer, the one with the highest sum of its own, the
    first among equals. Work: below 3^n / 2 for n cards.
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
    """Per set of cards the highest sum of a split of it, and of one that has a set which may be the answer."""
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
    """Of the best splits of these cards the first one's first set; unless `found`, one may still be the answer."""
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
    """Whether a split of these cards may have this set: a full one, or what is over."""
    size = width_of(part)
    return size == count or size == width_of(cards) % count


@compiled
def best_beside_rest(own: Rows, ranks: Rows, best: int, count: int) -> int:
    """The answer by two sets only, for more cards: its own sum and that of the best set that remains.

    Where fewer than `count` remain they are that set. Equal sums: the highest of its own, then the first in
    lexicographic order. Work: n * 2^n for n cards.
    """
    remaining = own.copy()  # of up to `count` cards their own sum, of more that of the best `count` of them
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
        part = next_alike(part)
    return answer
