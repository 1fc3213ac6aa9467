"""A hash table of rows, in one array: open addressing without deletion; the owner empties it when it is full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.compiled import compiled

Keys = npt.NDArray[np.int64]
"""One row per slot: a key, then the value of the owner; -1 first where it is empty. Slots are a power of two."""

_SPREAD = 0x9E3779B1
_HALF, _BITS = 0x3FFFFFFF, 30
"""Numbers are mixed in two halves, so that products stay within 64 bits."""


def empty_keys(slots: int, width: int) -> Keys:
    """Return an empty table of `slots` rows (a power of two) of `width` numbers; keys are not negative."""
    return np.full((slots, width), -1, np.int64)


@compiled
def slot_of(keys: Keys, key: Keys) -> int:
    """Return the slot that holds the key, or the empty one where it belongs. At least one slot must be empty."""
    mixed = 0
    for part in key:
        mixed = ((mixed ^ part ^ (part >> _BITS)) & _HALF) * _SPREAD
        mixed ^= mixed >> (_BITS - 1)
    slots = keys.shape[0]
    slot = int(mixed & (slots - 1))
    while keys[slot, 0] >= 0:
        same = True
        for at in range(key.shape[0]):
            if keys[slot, at] != key[at]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & (slots - 1)
    return slot
