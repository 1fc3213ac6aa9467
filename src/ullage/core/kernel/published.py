"""The functions of the policies of `core/strategies/published.py`."""

from __future__ import annotations

from typing import Any

from ullage.core.kernel import columns as c
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.fragmentation import best_fit_card, fgd, fgd_published
from ullage.core.kernel.packing import best_fit, clustering, dot_product, packing, random_card
from ullage.core.kernel.shares import CARD, model_of, share_asked, shares_on
from ullage.core.kernel.task_class import Mix
from ullage.core.kernel.tree import NO_ROOM

_LARGEST = 62

_LAST = 0
"""Where the state has the last number that was drawn."""


# --- which cards ---


@inlined
def _open_shares(nodes: Rows, cards: Rows, row: int, fits_per_card: Rows, asked: int) -> Rows:
    """Return what each card has free for the request: one that takes it has at least the share that is asked."""
    shares = shares_on(nodes, cards, row)
    for k in range(len(shares)):
        if fits_per_card[k]:
            shares[k] = max(shares[k], asked)
        elif shares[k] >= asked:
            shares[k] = 0
    return shares


@inlined
def _first_idle(nodes: Rows, row: int, shares: Rows, out: Rows) -> None:
    taken = 0
    for k in range(len(shares)):
        if taken < len(out) and shares[k] == CARD:
            out[taken] = nodes[row, c.FIRST_CARD] + k
            taken += 1


@inlined
def pick_best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, out: Rows) -> None:
    """Pick the first idle cards for whole cards, and the fullest cards that fit for parts."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = best_fit_card(shares, asked)
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1


# --- scores that look at one node ---


@inlined
def by_best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, notes: Rows) -> float:
    """Score less that is left higher."""
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(best_fit(nodes[row, c.CPU_FREE], shares, shape[0, c.CPU], asked, shape[0, c.COUNT]))


@inlined
def by_dot_product(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, notes: Rows
) -> float:
    """Score by the product of what is asked and what is free."""
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(dot_product(nodes[row, c.CPU_FREE], shares, shape[0, c.CPU], asked, shape[0, c.COUNT]))


@inlined
def by_packing(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, notes: Rows) -> float:
    """Score cards in use higher."""
    asked = share_asked(nodes, cards, row, shape)
    return float(packing(shares_on(nodes, cards, row), asked, shape[0, c.COUNT]))


@inlined
def by_clustering(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, notes: Rows
) -> float:
    """Score nodes that run work of the same size higher."""
    size = min(shape[0, c.COUNT], _LARGEST) if shape[0, c.WHOLE] else 0
    kind = size if shape[0, c.COUNT] else -1
    return float(clustering(shares_on(nodes, cards, row), nodes[row, c.RUNS], kind))


# --- FGD ---


@inlined
def by_fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Mix, notes: Rows) -> float:
    """Score less growth of fragmentation higher."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    growth, _ = fgd(
        nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, shape[0, c.COUNT], *state
    )
    return -growth


@inlined
def pick_fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Mix, out: Rows) -> None:
    """Pick the first idle cards for whole cards, and for parts those where fragmentation grows least."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        _, k = fgd(nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, 1, *state)
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1


@inlined
def by_fgd_published(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Mix, notes: Rows
) -> float:
    """Return the same score, truncated as the simulator does."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    score, _ = fgd_published(
        nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, shape[0, c.COUNT], *state
    )
    return float(score)


@inlined
def pick_fgd_published(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Mix, out: Rows
) -> None:
    """Make the same choice with truncated scores."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        _, k = fgd_published(
            nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, 1, *state
        )
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1


# --- at random ---


@inlined
def equal(nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: Any, notes: Rows) -> float:
    """Score all nodes the same."""
    return 0.0


@inlined
def _draw(numbers: Rows) -> int:
    """Return the next number of the generator of Park and Miller with multiplier 48271, 0 < number < 2**31 - 1."""
    numbers[_LAST] = numbers[_LAST] * 48271 % 2147483647
    return int(numbers[_LAST])


@inlined
def select_any(
    nodes: Rows,
    cards: Rows,
    shape: Rows,
    scratch: Rows,
    node_state: Rows,
    tree: Scores,
    state: tuple[Rows],
) -> int:
    """Return one of the nodes with room, each as likely."""
    (numbers,) = state
    size, fitting = len(tree) // 2, 0
    for row in range(len(nodes)):
        fitting += tree[size + row] != NO_ROOM
    if not fitting:
        return -1
    nth = _draw(numbers) % fitting
    for row in range(len(nodes)):
        if tree[size + row] != NO_ROOM:
            if not nth:
                return row
            nth -= 1
    return -1


@inlined
def pick_any(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: tuple[Rows], out: Rows
) -> None:
    """Pick the first idle cards for whole cards, and any card that has room for a part."""
    (numbers,) = state
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, fits_per_card, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = random_card(shares, asked, _draw(numbers))
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1
