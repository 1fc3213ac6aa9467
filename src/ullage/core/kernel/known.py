"""Leftover of the states of nodes that were met, computed once for each.

States with the same free CPU and the same free shares of cards, in any order, have the same leftover on
models that the same classes of tasks may use. What is forgotten is computed again, with the same answer.

So that the time of a decision is bounded, only so many states are filled as often as they should be between
two selections. Those beyond are filled a few times only, and again when they are asked for the next time.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.compiled import lean
from ullage.core.kernel.leftover import Draws, leftover, sort_into, stratified_draws
from ullage.core.kernel.memo import Keys, empty_keys, slot_of
from ullage.core.kernel.task_class import MODELS, Cards, Classes, Mix

FILLS = 64
"""Fills that leftover is the mean of."""
_FEW = 8
"""Fills of a state when there is no time for all."""
BUDGET = 512
"""States that may have all fills between two selections: a few thousandths of a second."""

_PATIENCE = 12
_SHARES = 2
"""Where the shares begin in a key."""
_IN_WORD, _SHARE_BITS = 6, 10
"""Shares in one number of a key, and bits of each: a key that is short is found soon."""

_SEED = 0

MEMO_SLOTS = 1 << 17
"""States of nodes that a memo has room for; the replay of a trace meets about 50,000."""
_FULL = 0.7
"""A new memo is started when this part of its slots is taken."""


Known = tuple[Keys, Keys, Keys, Keys, Classes, Draws, Cards]
"""A memo for one workload: per slot a key and a value; what is counted.

Then room for one key and for the shares of four nodes; then what it depends on: classes, draws, sizes of tasks
without cards. A key is free CPU, group of the model, and shares from the least on.
"""

# A value.
CERTAIN, FEW, LEFT = 0, 1, 2
"""Whether all fills were made; leftover by the first few; from there on what `leftover` writes, or would by these."""

# What is counted.
_TAKEN, _BEFORE, _BUDGET, _EACH = 0, 1, 2, 3
"""Slots in use; memos before this one; states that may still have all fills, and how many between two selections."""


def nothing_known(
    mix: Mix, cards: int, sizes: Cards, slots: int = MEMO_SLOTS, fills: int = FILLS, budget: int = BUDGET
) -> Known:
    """An empty memo for nodes of at most so many cards and these sizes (milli CPU) of tasks without cards.

    `fills` is at most 8 or a multiple of it. There is no end of the budget before the first selection.
    """
    width = _SHARES + -(-cards // _IN_WORD)
    counts = np.array([0, 0, np.iinfo(np.int64).max, budget])
    spare = counts, np.zeros(width, np.int64), np.zeros((2, 2 * cards), np.int64)
    draws = stratified_draws(mix.popularity, fills, _SEED)
    return empty_keys(slots, width + LEFT + 1 + len(sizes)), *spare, mix.classes, draws, sizes


def groups_of(classes: Classes, models: int) -> list[int]:
    """Per model the number of its group: the same classes may use all models of a group."""
    patterns = ((classes[:, MODELS][None, :] >> np.arange(models)[:, None]) & 1).tolist()
    return [patterns.index(pattern) for pattern in patterns]


@lean
def recall(known: Known, cpu_free: int, model: int, group: int, shares: Cards) -> int:
    """Where the memo has a state of a node: a place for `value_at`, as long as it is `there`."""
    memo, counts, key, room = known[0], known[1], known[2], known[3][0]
    sort_into(room, shares)
    key[0], key[1] = max(0, cpu_free), group
    for at in range(_SHARES, len(key)):
        key[at] = 0
    for card in range(len(shares)):
        at = _SHARES + card // _IN_WORD
        key[at] = (key[at] << _SHARE_BITS) | room[card]
    slot = slot_of(memo, key)
    new = memo[slot, 0] < 0
    if new and counts[_TAKEN] >= _FULL * len(memo):
        for each in range(len(memo)):
            memo[each, 0] = -1
        counts[_TAKEN] = 0
        counts[_BEFORE] += 1
        slot = slot_of(memo, key)
    value = memo[slot, len(key) :]
    if new:
        counts[_TAKEN] += 1
        for at in range(len(key)):
            memo[slot, at] = key[at]
    if new or (not value[CERTAIN] and counts[_BUDGET] > 0):
        _fill(known, key[0], room[: len(shares)], model, value)
    return int(counts[_BEFORE] * len(memo) + slot)


@lean
def _fill(known: Known, cpu_free: int, shares: Cards, model: int, value: Cards) -> None:
    """Write the value of a state."""
    _, counts, _, space, classes, draws, sizes = known
    few = min(_FEW, len(draws))
    for at in range(len(value)):
        value[at] = 0
    leftover(cpu_free, shares, model, classes, draws[:few], _PATIENCE, sizes, space[1], value[LEFT:])
    value[FEW] = value[LEFT]
    if counts[_BUDGET] > 0:
        counts[_BUDGET] -= 1
        value[CERTAIN] = 1
        leftover(cpu_free, shares, model, classes, draws[few:], _PATIENCE, sizes, space[1], value[LEFT:])
    else:
        for at in range(LEFT, len(value)):
            value[at] *= len(draws) // few


@lean
def renew(known: Known) -> None:
    """The budget is that of a new decision."""
    known[1][_BUDGET] = known[1][_EACH]


@lean
def growth(known: Known, place: int, now: Cards) -> int:
    """How much more is left, summed over all fills, of the state than of the value `now`: by the same fills of both."""
    if now[CERTAIN] and value_at(known, place, CERTAIN):
        return int(value_at(known, place, LEFT) - now[LEFT])
    draws = known[5]
    return int((value_at(known, place, FEW) - now[FEW]) * (len(draws) // min(_FEW, len(draws))))


@lean
def value_at(known: Known, place: int, at: int) -> int:
    """A number of the value of a state."""
    return int(known[0][place & (len(known[0]) - 1), len(known[2]) + at])


@lean
def there(known: Known, place: int) -> bool:
    """Whether the memo in which the state had this place is still in use."""
    return bool(place & -len(known[0]) == known[1][_BEFORE] * len(known[0]))
