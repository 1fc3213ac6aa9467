"""A memo of the leftover of node states, so that each state is computed once.

States with the same free CPU and the same free shares of cards, in any order, have the same leftover on models that
the same classes of tasks may use. A state that was forgotten is computed again, with the same result.

To bound the time of a decision, only so many states get all fills between two selections. Any further state gets a
few fills, and all of them the next time it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.compiled import lean
from ullage.core.kernel.leftover import Draws, leftover, sort_into, stratified_draws
from ullage.core.kernel.memo import Keys, empty_keys, slot_of
from ullage.core.kernel.task_class import MODELS, Cards, Classes, Mix

FILLS = 64
"""Fills of a state, of which leftover is the mean."""
_FEW = 8
"""Fills of a state beyond the budget."""
BUDGET = 512
"""States that may have all fills between two selections: a few thousandths of a second."""

_PATIENCE = 12
_CPU, _GROUP, _SHARES = 0, 1, 2
"""In a key: free CPU, the group of the model, and where the shares begin, the least first."""
_IN_WORD, _SHARE_BITS = 6, 10
"""Shares in one number of a key, and bits of each: a short key is found faster."""

_SEED = 0

MEMO_SLOTS = 1 << 17
"""States of nodes that a memo has room for; the replay of a trace meets about 50,000."""
_FULL = 0.7
"""A memo is emptied when this part of its slots is taken."""


class Memo(NamedTuple):
    """A memo for one workload: per slot a key and a value, and `counts` of them.

    `key` is scratch for a key, `sorted_shares` and `fill_scratch` for the cards of two nodes each. Values depend on
    `classes`, `draws` and `sizes` (milli CPU of tasks without cards).
    """

    slots: Keys
    counts: Keys
    key: Keys
    sorted_shares: Keys
    fill_scratch: Keys
    classes: Classes
    draws: Draws
    sizes: Cards


# A value.
CERTAIN, FEW, LEFT = 0, 1, 2
"""Whether all fills were made; the leftover of the first few; from here on what `leftover` writes, or an estimate."""

# Counts.
_TAKEN, _GENERATION, _BUDGET, _EACH = 0, 1, 2, 3
"""Slots in use; how often the memo was emptied; states that may still have all fills, and the budget per selection."""


def empty_memo(
    mix: Mix, cards: int, sizes: Cards, slots: int = MEMO_SLOTS, fills: int = FILLS, budget: int = BUDGET
) -> Memo:
    """Return an empty memo for nodes of at most so many cards and these sizes of tasks without cards.

    `fills` is at most 8 or a multiple of it. The budget is unlimited before the first selection.
    """
    width = _SHARES + -(-cards // _IN_WORD)
    counts = np.array([0, 0, np.iinfo(np.int64).max, budget])
    scratch = np.zeros(width, np.int64), np.zeros(2 * cards, np.int64), np.zeros(2 * cards, np.int64)
    draws = stratified_draws(mix.popularity, fills, _SEED)
    return Memo(empty_keys(slots, width + LEFT + 1 + len(sizes)), counts, *scratch, mix.classes, draws, sizes)


def groups_of(classes: Classes, models: int) -> list[int]:
    """Return the group of each model: the same classes may use all models of a group."""
    patterns = ((classes[:, MODELS][None, :] >> np.arange(models)[:, None]) & 1).tolist()
    return [patterns.index(pattern) for pattern in patterns]


@lean
def recall(memo: Memo, cpu_free: int, model: int, group: int, shares: Cards) -> int:
    """Return the place of a node state in the memo, for `value_at`, valid as long as it `is_current`."""
    slots, counts, key = memo.slots, memo.counts, memo.key
    sort_into(memo.sorted_shares, shares)
    key[_CPU], key[_GROUP] = max(0, cpu_free), group
    for at in range(_SHARES, len(key)):
        key[at] = 0
    for card in range(len(shares)):
        at = _SHARES + card // _IN_WORD
        key[at] = (key[at] << _SHARE_BITS) | memo.sorted_shares[card]
    slot = slot_of(slots, key)
    new = slots[slot, 0] < 0
    if new and counts[_TAKEN] >= _FULL * len(slots):
        for each in range(len(slots)):
            slots[each, 0] = -1
        counts[_TAKEN] = 0
        counts[_GENERATION] += 1
        slot = slot_of(slots, key)
    value = slots[slot, len(key) :]
    if new:
        counts[_TAKEN] += 1
        for at in range(len(key)):
            slots[slot, at] = key[at]
    if new or (not value[CERTAIN] and counts[_BUDGET] > 0):
        _fill(memo, key[_CPU], memo.sorted_shares[: len(shares)], model, value)
    return int(counts[_GENERATION] * len(slots) + slot)


@lean
def _fill(memo: Memo, cpu_free: int, shares: Cards, model: int, value: Cards) -> None:
    """Write the value of a state."""
    counts, scratch, classes, draws, sizes = memo.counts, memo.fill_scratch, memo.classes, memo.draws, memo.sizes
    few = min(_FEW, len(draws))
    for at in range(len(value)):
        value[at] = 0
    leftover(cpu_free, shares, model, classes, draws[:few], _PATIENCE, sizes, scratch, value[LEFT:])
    value[FEW] = value[LEFT]
    if counts[_BUDGET] > 0:
        counts[_BUDGET] -= 1
        value[CERTAIN] = 1
        leftover(cpu_free, shares, model, classes, draws[few:], _PATIENCE, sizes, scratch, value[LEFT:])
    else:
        for at in range(LEFT, len(value)):
            value[at] *= len(draws) // few


@lean
def renew_budget(memo: Memo) -> None:
    """Set the budget to that of a new decision."""
    memo.counts[_BUDGET] = memo.counts[_EACH]


@lean
def growth(memo: Memo, place: int, now: Cards) -> int:
    """Return how much more a state leaves over than the value `now`, summed over all fills, by the same fills."""
    if now[CERTAIN] and value_at(memo, place, CERTAIN):
        return int(value_at(memo, place, LEFT) - now[LEFT])
    fills = len(memo.draws)
    return int((value_at(memo, place, FEW) - now[FEW]) * (fills // min(_FEW, fills)))


@lean
def value_at(memo: Memo, place: int, at: int) -> int:
    """Return a number of the value of a state."""
    return int(memo.slots[place & (len(memo.slots) - 1), len(memo.key) + at])


@lean
def is_current(memo: Memo, place: int) -> bool:
    """Return whether the memo was not emptied since a state had this place."""
    return bool(place & -len(memo.slots) == memo.counts[_GENERATION] * len(memo.slots))
