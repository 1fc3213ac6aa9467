"""Leftover of the states of nodes that were met, computed once for each.

States with the same free CPU and the same free shares of cards, in any order, have the same leftover on
models that the same classes of tasks may use. What is forgotten is computed again, with the same answer.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.leftover import Draws, leftover, sort_into, stratified_draws
from ullage.core.kernel.memo import Keys, empty_keys, slot_of
from ullage.core.kernel.task_class import MODELS, Cards, Classes, Mix, Popularity

FILLS = 256
"""Fills that leftover is the mean of: a power of two, so that means are exact."""

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


Known = tuple[Keys, Popularity, Keys, Keys, Cards, Classes, Draws, Cards]
"""A memo for one workload: keys; per slot what `leftover` writes; slots taken and memos before this one.

Then room for one key and for the shares of one node; then what it depends on: classes, draws, sizes of tasks
without cards. A key is free CPU, group of the model, and shares from the least on.
"""


def nothing_known(mix: Mix, cards: int, sizes: Cards, slots: int = MEMO_SLOTS, fills: int = FILLS) -> Known:
    """An empty memo for nodes of at most so many cards and these sizes (milli CPU) of tasks without cards.

    `fills` is a power of two, `FILLS` at most.
    """
    width = _SHARES + -(-cards // _IN_WORD)
    draws = stratified_draws(mix.popularity, fills, _SEED)
    spare = np.zeros(2, np.int64), np.zeros(width, np.int64), np.zeros(cards, np.int64)
    return empty_keys(slots, width), np.zeros((slots, 1 + len(sizes))), *spare, mix.classes, draws, sizes


def groups_of(classes: Classes, models: int) -> list[int]:
    """Per model the number of its group: the same classes may use all models of a group."""
    patterns = ((classes[:, MODELS][None, :] >> np.arange(models)[:, None]) & 1).tolist()
    return [patterns.index(pattern) for pattern in patterns]


@inlined
def recall(known: Known, cpu_free: int, model: int, group: int, shares: Cards) -> int:
    """Where the memo has a state of a node: a place for `value_at`, as long as that is `there`."""
    keys, values, counts, key, room, classes, draws, sizes = known
    sort_into(room, shares)
    key[0], key[1] = max(0, cpu_free), group
    for at in range(_SHARES, len(key)):
        key[at] = 0
    for card in range(len(shares)):
        at = _SHARES + card // _IN_WORD
        key[at] = (key[at] << _SHARE_BITS) | room[card]
    slot = slot_of(keys, key)
    if keys[slot, 0] < 0:
        if counts[0] >= _FULL * len(keys):
            for each in range(len(keys)):
                keys[each, 0] = -1
            counts[0] = 0
            counts[1] += 1
            slot = slot_of(keys, key)
        for at in range(len(key)):
            keys[slot, at] = key[at]
        counts[0] += 1
        leftover(key[0], room[: len(shares)], model, classes, draws, _PATIENCE, sizes, values[slot])
    return int(counts[1] * len(keys) + slot)


@inlined
def value_at(known: Known, place: int) -> Popularity:
    """What `leftover` wrote for the state."""
    found: Popularity = known[1][place & (len(known[0]) - 1)]
    return found


@inlined
def there(known: Known, place: int) -> bool:
    """Whether the memo in which the state had this place is still in use."""
    return bool(place & -len(known[0]) == known[2][1] * len(known[0]))
