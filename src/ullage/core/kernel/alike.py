"""Which rows of numbers are equal, in one pass."""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.memo import slot_of


@compiled
def number_alike(rows: Rows) -> tuple[Rows, Rows]:
    """Per row the number of its kind, counted from 0 in the order of their first rows; and those first rows.

    The first number of a row is not negative.
    """
    slots = 1
    while slots <= len(rows):
        slots *= 2
    keys, known = np.full((slots, rows.shape[1]), -1, np.int64), np.empty(slots, np.int64)
    numbers, first, count = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64), 0
    for row in range(len(rows)):
        slot = slot_of(keys, rows[row])
        if keys[slot, 0] < 0:
            keys[slot] = rows[row]
            known[slot] = count
            first[count] = row
            count += 1
        numbers[row] = known[slot]
    return numbers, first[:count]
