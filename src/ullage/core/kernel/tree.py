"""A tournament tree: the best of many scores, after each change of one of them.

`tree` has 2 * size numbers, the leaves from `size` on. Each inner node is the larger of its two children. A change
updates the path to the root. The best is found on the way down, and the first of equal ones wins.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Scores
from ullage.core.kernel.compiled import compiled, lean

NO_ROOM = -np.inf
"""The score of a node that does not take the request."""

_ROOT = 1


def planted(leaves: int) -> Scores:
    """Return a tree for so many scores, all `NO_ROOM`."""
    size = 1
    while size < leaves:
        size *= 2
    return np.full(2 * size, NO_ROOM)


@lean
def enter(tree: Scores, leaf: int, score: float) -> None:
    """Change one score."""
    at = len(tree) // 2 + leaf
    tree[at] = score
    while at > _ROOT:
        at //= 2
        best = max(tree[2 * at], tree[2 * at + 1])
        if tree[at] == best:
            return
        tree[at] = best


@compiled
def grow(tree: Scores) -> None:
    """Compute the inner nodes from the leaves."""
    for at in range(len(tree) // 2 - 1, 0, -1):
        tree[at] = max(tree[2 * at], tree[2 * at + 1])


@compiled
def winner(tree: Scores) -> int:
    """Return the first leaf that has the best score; -1 if none has room."""
    size = len(tree) // 2
    best = tree[_ROOT]
    if best == NO_ROOM:
        return -1
    at = _ROOT
    while at < size:
        at *= 2
        if tree[at] != best:
            at += 1
    return at - size
