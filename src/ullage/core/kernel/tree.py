"""A tournament: which of many scores is the best, after each change of one of them.

`tree` has 2 * size numbers, the leaves from `size` on; every inner node is the larger of its two. A change
costs the path to the root, the best is found on the way down, and the first of equal ones wins.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Scores
from ullage.core.kernel.compiled import compiled, lean

NO_ROOM = -np.inf
"""The score of a node that does not take the request."""


def planted(leaves: int) -> Scores:
    """A tree for so many scores, none of which has room."""
    size = 1
    while size < leaves:
        size *= 2
    return np.full(2 * size, NO_ROOM)


@lean
def enter(tree: Scores, leaf: int, score: float) -> None:
    """Change one score."""
    at = len(tree) // 2 + leaf
    tree[at] = score
    while at > 1:
        at //= 2
        best = max(tree[2 * at], tree[2 * at + 1])
        if tree[at] == best:
            return
        tree[at] = best


@compiled
def grow(tree: Scores) -> None:
    """Make the inner nodes follow from the leaves."""
    for at in range(len(tree) // 2 - 1, 0, -1):
        tree[at] = max(tree[2 * at], tree[2 * at + 1])


@compiled
def winner(tree: Scores) -> int:
    """The first leaf that has the best score; -1 if none has room."""
    size = len(tree) // 2
    best = tree[1] if size > 1 else tree[size]
    if best == NO_ROOM:
        return -1
    at = 1
    while at < size:
        at *= 2
        if tree[at] != best:
            at += 1
    return at - size
