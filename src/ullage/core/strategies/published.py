"""The policies of "Beware of Fragmentation" (Weng et al., USENIX ATC'23) as its open simulator runs them.

Scores are truncated to integers and ties fall to the first node, which carries part of the published
figures; `fgd` is the same gradient with exact scores. All of them see cards as shares (thousandths of a
card) and a node's cards as alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ullage.core.kernel.columns import COUNT, CPU, CPU_FREE, FIRST_CARD, RUNS, WHOLE, Rows, Scores
from ullage.core.kernel.compiled import inlined
from ullage.core.kernel.fragmentation import best_fit_card, fgd, fgd_published
from ullage.core.kernel.packing import best_fit, clustering, dot_product, packing, random_card
from ullage.core.kernel.shares import CARD, model_of, share_asked, shares_on
from ullage.core.kernel.task_class import Mix
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.strategies.strategy import Strategy, alike

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
            out[taken] = nodes[row, FIRST_CARD] + k
            taken += 1


@inlined
def _pick_best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, out: Rows) -> None:
    """Whole cards: the first idle ones; parts: the fullest cards that fit."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = best_fit_card(shares, asked)
        out[taken] = nodes[row, FIRST_CARD] + k
        shares[k] = -1


# --- scores that look at one node ---


@inlined
def _best_fit(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(best_fit(nodes[row, CPU_FREE], shares, shape[0, CPU], asked, shape[0, COUNT]))


@inlined
def _dot_product(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    shares, asked = shares_on(nodes, cards, row), share_asked(nodes, cards, row, shape)
    return float(dot_product(nodes[row, CPU_FREE], shares, shape[0, CPU], asked, shape[0, COUNT]))


@inlined
def _packing(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    asked = share_asked(nodes, cards, row, shape)
    return float(packing(shares_on(nodes, cards, row), asked, shape[0, COUNT]))


@inlined
def _clustering(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    size = min(shape[0, COUNT], _LARGEST) if shape[0, WHOLE] else 0
    kind = size if shape[0, COUNT] else -1
    return float(clustering(shares_on(nodes, cards, row), nodes[row, RUNS], kind))


# --- FGD ---


@inlined
def _fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, note: Rows) -> float:
    """Less growth of fragmentation is better."""
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    growth, _ = fgd(
        nodes[row, CPU_FREE], shares, model_of(nodes, cards, row), shape[0, CPU], asked, shape[0, COUNT], *state
    )
    return -growth


@inlined
def _pick_fgd(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, out: Rows) -> None:
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        _, k = fgd(nodes[row, CPU_FREE], shares, model_of(nodes, cards, row), shape[0, CPU], asked, 1, *state)
        out[taken] = nodes[row, FIRST_CARD] + k
        shares[k] = -1


@inlined
def _fgd_published(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, note: Rows) -> float:
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    score, _ = fgd_published(
        nodes[row, CPU_FREE], shares, model_of(nodes, cards, row), shape[0, CPU], asked, shape[0, COUNT], *state
    )
    return float(score)


@inlined
def _pick_fgd_published(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Mix, out: Rows) -> None:
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        _, k = fgd_published(nodes[row, CPU_FREE], shares, model_of(nodes, cards, row), shape[0, CPU], asked, 1, *state)
        out[taken] = nodes[row, FIRST_CARD] + k
        shares[k] = -1


# --- at random ---


@inlined
def _same(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    return 0.0


@inlined
def _draw(numbers: Rows) -> int:
    """The next number of the generator of Park and Miller with multiplier 48271, 0 < number < 2**31 - 1."""
    numbers[0] = numbers[0] * 48271 % 2147483647
    return int(numbers[0])


@inlined
def _select_any(
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
def _pick_any(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: tuple[Rows], out: Rows) -> None:
    asked = share_asked(nodes, cards, row, shape)
    shares = _open_shares(nodes, cards, row, units, asked)
    if shape[0, WHOLE]:
        _first_idle(nodes, row, shares, out)
        return
    for taken in range(len(out)):
        k = random_card(shares, asked, _draw(state[0]))
        out[taken] = nodes[row, FIRST_CARD] + k
        shares[k] = -1


# --- strategies ---


_OF_NODE: dict[str, Callable[..., float]] = {
    "best-fit-published": _best_fit,
    "dot-product": _dot_product,
    "packing": _packing,
    "clustering": _clustering,
}

PUBLISHED = (*_OF_NODE, "fgd", "fgd-published", "random")
"""All of them by name."""


def published(name: str, mix: Mix, seed: int) -> Strategy | None:
    """The policy of that name, for a typical workload and, where it draws, a seed; None if there is no such."""
    if name in _OF_NODE:
        return Strategy(name, _OF_NODE[name], alike, _pick_best_fit)
    if name == "fgd":
        return Strategy(name, _fgd, alike, _pick_fgd, tuple(mix))
    if name == "fgd-published":
        return Strategy(name, _fgd_published, alike, _pick_fgd_published, tuple(mix))
    if name == "random":
        return Strategy(name, _same, alike, _pick_any, (np.array([1 + seed % 2147483646]),), _select_any)
    return None
