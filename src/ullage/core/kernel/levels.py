"""Cards of a large node, taken by level: from as few and as small groups as possible, without trying all sets."""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled


@compiled
def fill_by_level(groups: Rows, free: Rows, taken: Rows, count: int) -> None:
    """Take `count` more of the free cards: set them in `taken`, which may have some already.

    `groups` has a row per level, outermost first, with the group of each card: the number of one of the group's
    cards. At each level a group that was taken from comes first, then the smallest that is enough, then the largest.
    Within the innermost group, cards come in their order.
    """
    within = np.zeros_like(free)
    while count > 0:
        asked = count
        for card in range(len(free)):
            within[card] = free[card] and not taken[card]
        for level in range(len(groups)):
            group = _next_group(groups[level], within, taken, asked)
            size = 0
            for card in range(len(free)):
                within[card] = within[card] and groups[level, card] == group
                size += within[card]
            asked = min(asked, size)
        for card in range(len(free)):
            if within[card] and asked > 0:
                taken[card] = 1
                asked -= 1
                count -= 1


@compiled
def _next_group(group_of: Rows, within: Rows, taken: Rows, asked: int) -> int:
    sizes, opened = np.zeros_like(within), np.zeros_like(within)
    for card in range(len(within)):
        sizes[group_of[card]] += within[card]
        opened[group_of[card]] |= taken[card]
    best = -1
    for group in range(len(within)):
        if sizes[group] == 0:
            continue
        if best < 0 or opened[group] > opened[best]:
            best = group
        elif opened[group] == opened[best]:
            enough, known = sizes[group] >= asked, sizes[best] >= asked
            closer = sizes[group] < sizes[best] if enough and known else sizes[group] > sizes[best]
            if closer:
                best = group
    return best
