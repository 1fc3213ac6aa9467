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


# --- which cards ---


@inlined
def _open_shares(nodes: Rows, cards: Rows, row: int, units: Rows, asked: int) -> Rows:
    """What each card has free as the request sees it: one that takes it has the share, whichever amount is short."""
    shares = shares_on(nodes, cards, row)
    for k in range(len(shares)):
        if units[k]:
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
def pick_best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, out: Rows) -> None:
    """Whole cards: the first idle ones; parts: the fullest cards that fit."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = best_fit_card(shares, asked)
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1


# --- scores that look at one node ---


@inlined
def by_best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    """Less that is left over is better."""
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(best_fit(nodes[row, c.CPU_FREE], shares, shape[0, c.CPU], asked, shape[0, c.COUNT]))


@inlined
def by_dot_product(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    """What is asked along what is free."""
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(dot_product(nodes[row, c.CPU_FREE], shares, shape[0, c.CPU], asked, shape[0, c.COUNT]))


@inlined
def by_packing(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    """Cards in use come first."""
    asked = share_asked(nodes, cards, row, shape)
    return float(packing(shares_on(nodes, cards, row), asked, shape[0, c.COUNT]))


@inlined
def by_clustering(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    """Nodes that run work of the same size come first."""
    size = min(shape[0, c.COUNT], _LARGEST) if shape[0, c.WHOLE] else 0
    kind = size if shape[0, c.COUNT] else -1
    return float(clustering(shares_on(nodes, cards, row), nodes[row, c.RUNS], kind))


# --- FGD ---


@inlined
def by_fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, note: Rows) -> float:
    """Less growth of fragmentation is better."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    growth, _ = fgd(
        nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, shape[0, c.COUNT], *state
    )
    return -growth


@inlined
def pick_fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, out: Rows) -> None:
    """Whole cards: the first idle ones; parts: where fragmentation grows least."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        _, k = fgd(nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, 1, *state)
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1


@inlined
def by_fgd_published(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, note: Rows) -> float:
    """The same score, truncated as the simulator does."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    score, _ = fgd_published(
        nodes[row, c.CPU_FREE], shares, model_of(nodes, cards, row), shape[0, c.CPU], asked, shape[0, c.COUNT], *state
    )
    return float(score)


@inlined
def pick_fgd_published(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, out: Rows) -> None:
    """The same choice with truncated scores."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
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
def equal(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    """No node is better than another."""
    return 0.0


@inlined
def _draw(numbers: Rows) -> int:
    """The next number of the generator of Park and Miller with multiplier 48271, 0 < number < 2**31 - 1."""
    numbers[0] = numbers[0] * 48271 % 2147483647
    return int(numbers[0])


@inlined
def select_any(
    nodes: Rows,
    cards: Rows,
    shape: Rows,
    space: Rows,
    said: Rows,
    tree: Scores,
    state: tuple[Rows],
) -> int:
    """One of the nodes with room, each as likely."""
    size, fitting = len(tree) // 2, 0
    for row in range(len(nodes)):
        fitting += tree[size + row] != NO_ROOM
    if not fitting:
        return -1
    nth = _draw(state[0]) % fitting
    for row in range(len(nodes)):
        if tree[size + row] != NO_ROOM:
            if not nth:
                return row
            nth -= 1
    return -1


@inlined
def pick_any(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: tuple[Rows], out: Rows) -> None:
    """Whole cards: the first idle ones; parts: any card that has room."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, c.WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = random_card(shares, asked, _draw(state[0]))
        out[taken] = nodes[row, c.FIRST_CARD] + k
        shares[k] = -1
