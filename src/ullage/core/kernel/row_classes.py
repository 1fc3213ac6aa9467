"""Number the distinct rows of a table, in one pass."""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.memo import slot_of


@compiled
def number_classes(rows: Rows) -> tuple[Rows, Rows]:
    """Return per row the number of its class, in the order of first rows, and the first row of each class.

    The first number of each row must not be negative.
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
