"""Cards as shares, in thousandths of a card, the unit of published placement policies."""

from __future__ import annotations

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Flags, Rows, Scores
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.fragmentation import fragmentation
from ullage.core.kernel.task_class import Classes, Popularity

CARD = 1000

"""A flag per node or per card."""


@compiled
def shares_on(nodes: Rows, cards: Rows, row: int) -> Rows:
    """Return the free share of each card of a node: the smaller of compute and vram, rounded down."""
    first = nodes[row, c.FIRST_CARD]
    shares = np.empty(nodes[row, c.AFTER_CARDS] - first, np.int64)
    for k in range(len(shares)):
        shares[k] = share_on(cards, first + k)
    return shares


@compiled
def share_on(cards: Rows, card: int) -> int:
    return int(cards[card, c.SHARE])


@compiled
def share_asked(nodes: Rows, cards: Rows, row: int, shape: Rows) -> int:
    """Return the share that a request takes of each card of such a node, rounded up; 0 without cards."""
    if not shape[0, c.COUNT]:
        return 0
    if shape[0, c.WHOLE]:
        return CARD
    card = nodes[row, c.FIRST_CARD]
    kind = cards[card, c.KIND] + 1
    compute = -_part(-shape[kind, c.COMPUTE], cards[card, c.COMPUTE_TOTAL])
    return int(max(compute, -_part(-shape[kind, c.VRAM], cards[card, c.VRAM_TOTAL])))


@compiled
def _part(amount: int, total: int) -> int:
    return amount * CARD // total if total else CARD


@compiled
def model_of(nodes: Rows, cards: Rows, row: int) -> int:
    """Return the kind of a node's cards, as the masks of task classes number it; 62 for a node without cards."""
    first = nodes[row, c.FIRST_CARD]
    if first == nodes[row, c.AFTER_CARDS]:
        return 62
    return int(min(62, cards[first, c.KIND]))


@compiled
def idle_and_fragments(
    nodes: Rows, cards: Rows, row: int, takes: Flags, usable: Flags, classes: Classes, popularity: Popularity
) -> tuple[int, float]:
    """Return the idle thousandths of a node's cards, and how many of them no task of the workload can use.

    Only cards that may get work count: `usable` cards of nodes that take work (`takes`).
    """
    if not takes[row]:
        return 0, 0.0
    shares, first = shares_on(nodes, cards, row), nodes[row, c.FIRST_CARD]
    for k in range(len(shares)):
        if not usable[first + k]:
            shares[k] = 0
    model = model_of(nodes, cards, row)
    return int(shares.sum()), float(fragmentation(nodes[row, c.CPU_FREE], shares, model, classes, popularity))


@compiled
def measure(
    nodes: Rows,
    cards: Rows,
    rows: Rows,
    takes: Flags,
    usable: Flags,
    classes: Classes,
    popularity: Popularity,
    out: Scores,
) -> None:
    """Write the idle thousandths of each of these nodes, and their fragments."""
    for row in rows:
        out[0, row], out[1, row] = idle_and_fragments(nodes, cards, row, takes, usable, classes, popularity)
