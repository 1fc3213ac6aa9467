"""Leftover of the states of nodes that were met, computed once for each.

States with the same free CPU and the same free shares of cards, in any order, have the same leftover on
models that the same classes of tasks may use. What is forgotten is computed again, with the same answer.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.compiled import lean
from ullage.core.kernel.leftover import Draws, leftover, sort_into, stratified_draws
from ullage.core.kernel.memo import Keys, empty_keys, slot_of
from ullage.core.kernel.task_class import MODELS, Cards, Classes, Mix

FILLS = 64
"""Fills that leftover is the mean of."""

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
"""A memo for one workload: per slot a key and what `leftover` writes; slots taken and memos before this one.

Then room for one key and for the shares of four nodes; then what it depends on: classes, draws, sizes of tasks
without cards. A key is free CPU, group of the model, and shares from the least on.
"""


def nothing_known(mix: Mix, cards: int, sizes: Cards, slots: int = MEMO_SLOTS, fills: int = FILLS) -> Known:
    """An empty memo for nodes of at most so many cards and these sizes (milli CPU) of tasks without cards."""
    width = _SHARES + -(-cards // _IN_WORD)
    spare = np.zeros(2, np.int64), np.zeros(width, np.int64), np.zeros((2, 2 * cards), np.int64)
    draws = stratified_draws(mix.popularity, fills, _SEED)
    return empty_keys(slots, width + 1 + len(sizes)), *spare, mix.classes, draws, sizes


def groups_of(classes: Classes, models: int) -> list[int]:
    """Per model the number of its group: the same classes may use all models of a group."""
    patterns = ((classes[:, MODELS][None, :] >> np.arange(models)[:, None]) & 1).tolist()
    return [patterns.index(pattern) for pattern in patterns]


@lean
def recall(known: Known, cpu_free: int, model: int, group: int, shares: Cards) -> int:
    """Where the memo has a state of a node: a place for `value_at`, as long as it is `there`."""
    memo, counts, key, space, classes, draws, sizes = known
    room = space[0]
    sort_into(room, shares)
    key[0], key[1] = max(0, cpu_free), group
    for at in range(_SHARES, len(key)):
        key[at] = 0
    for card in range(len(shares)):
        at = _SHARES + card // _IN_WORD
        key[at] = (key[at] << _SHARE_BITS) | room[card]
    slot = slot_of(memo, key)
    if memo[slot, 0] < 0:
        if counts[0] >= _FULL * len(memo):
            for each in range(len(memo)):
                memo[each, 0] = -1
            counts[0] = 0
            counts[1] += 1
            slot = slot_of(memo, key)
        for at in range(len(key)):
            memo[slot, at] = key[at]
        counts[0] += 1
        written = memo[slot, len(key) :]
        leftover(key[0], room[: len(shares)], model, classes, draws, _PATIENCE, sizes, space[1], written)
    return int(counts[1] * len(memo) + slot)


@lean
def value_at(known: Known, place: int, each: int) -> int:
    """What `leftover` wrote for the state at a position."""
    return int(known[0][place & (len(known[0]) - 1), len(known[2]) + each])


@lean
def there(known: Known, place: int) -> bool:
    """Whether the memo in which the state had this place is still in use."""
    return bool(place & -len(known[0]) == known[1][1] * len(known[0]))
