"""Leftover of the states of nodes that were met, computed once for each.

States with the same free CPU and the same free shares of cards, in any order, have the same leftover on
models that the same classes of tasks may use. What is forgotten is computed again, with the same answer.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.leftover import Draws, leftover, stratified_draws
from ullage.core.kernel.memo import Keys, empty_keys, slot_of
from ullage.core.kernel.task_class import MODELS, Cards, Classes, Mix, Popularity

FILLS = 256
"""Fills that leftover is the mean of: a power of two, so that means are exact."""

_PATIENCE = 12
_SHARES = 2
"""Where the shares begin in a key."""

_SEED = 0

MEMO_SLOTS = 1 << 17
"""States of nodes that a memo has room for; the replay of a trace meets about 50,000."""
_FULL = 0.7
"""A new memo is started when this part of its slots is taken."""


Known = tuple[Keys, Popularity, Keys, Classes, Draws, Cards]
"""A memo for one workload: keys; per slot what `leftover` writes; slots taken, memos before this one, room for one key.

Then what it depends on: classes, draws, sizes of tasks without cards. A key is free CPU, group of the model,
and shares from the least on.
"""


def nothing_known(mix: Mix, cards: int, sizes: Cards, slots: int = MEMO_SLOTS, fills: int = FILLS) -> Known:
    """An empty memo for nodes of at most so many cards and these sizes (milli CPU) of tasks without cards.

    `fills` is a power of two, `FILLS` at most.
    """
    width = _SHARES + cards
    draws = stratified_draws(mix.popularity, fills, _SEED)
    values, spare = np.zeros((slots, 1 + len(sizes))), np.zeros(2 + width, np.int64)
    return empty_keys(slots, width), values, spare, mix.classes, draws, sizes


def groups_of(classes: Classes, models: int) -> list[int]:
    """Per model the number of its group: the same classes may use all models of a group."""
    patterns = ((classes[:, MODELS][None, :] >> np.arange(models)[:, None]) & 1).tolist()
    return [patterns.index(pattern) for pattern in patterns]


@inlined
def recall(known: Known, cpu_free: int, model: int, group: int, shares: Cards) -> int:
    """Where the memo has a state of a node: a place for `value_at`, as long as that is `there`."""
    keys, values, spare, classes, draws, sizes = known
    key = spare[2:]
    key[:] = 0
    key[0], key[1] = max(0, cpu_free), group
    for card in range(len(shares)):
        at = _SHARES + card
        while at > _SHARES and key[at - 1] > shares[card]:
            key[at] = key[at - 1]
            at -= 1
        key[at] = shares[card]
    slot = slot_of(keys, key)
    if keys[slot, 0] < 0:
        if spare[0] >= _FULL * len(keys):
            keys[:, 0] = -1
            spare[0] = 0
            spare[1] += 1
            slot = slot_of(keys, key)
        keys[slot] = key
        spare[0] += 1
        room = key[_SHARES : _SHARES + len(shares)]
        leftover(key[0], room, model, classes, draws, _PATIENCE, sizes, values[slot])
    return int(spare[1] * len(keys) + slot)


@inlined
def value_at(known: Known, place: int) -> Popularity:
    """What `leftover` wrote for the state."""
    found: Popularity = known[1][place % len(known[0])]
    return found


@inlined
def there(known: Known, place: int) -> bool:
    """Whether the memo in which the state had this place is still in use."""
    return bool(place // len(known[0]) == known[2][1])
