"""The compiled loops of a strategy: bring a table up to date, and take the best from it.

A table has a row per node in `said` (as `core/kernel/columns.py` says, then what the strategy notes) and the scores
in `tree`. Nodes are chained by their changes, from `newest` on. `space` has room for the cards of any node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.alignment import closeness_of
from ullage.core.kernel.board import verdict_in
from ullage.core.kernel.charge import charge_unit, touch
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.room import enough, fits_beside_cards, look_at_cards
from ullage.core.kernel.tree import NO_ROOM, enter, grow, winner
from ullage.core.kernel.zones import FIT, SPEND, TAKE, decide


@inlined
def first_best(nodes: Rows, cards: Rows, shape: Rows, space: Rows, said: Rows, tree: Scores, state: Any) -> int:
    """The first node with the best score: how most strategies select."""
    return winner(tree)


@inlined
def heedless(nodes: Rows, cards: Rows, row: int, state: Any) -> None:
    """Ignore a changed node: most strategies keep no state of nodes."""


@inlined
def equal_cards(cards: Rows, card: int, shape: Rows, state: Any) -> float:
    """Score all cards the same: for strategies that score nodes only."""
    return 0.0


class Loops(NamedTuple):
    """What is compiled for the functions of one strategy.

    `judge` enters a node of which the given cards take a share; `fill` judges every node, `refresh` those that
    changed since a clock; `choose` refreshes, gives the best node or -1, and writes its
    cards into `out`; with a `mode` (how its cards are held) the unit is charged to the rows, at this clock.
    """

    judge: Callable[..., None]
    fill: Callable[..., None]
    refresh: Callable[..., None]
    choose: Callable[..., int]


@inlined
def score(
    node: Callable[..., Any],
    nodes: Rows,
    cards: Rows,
    row: int,
    shape: Rows,
    space: Rows,
    store: Rows,
    said: Rows,
    state: Any,
) -> float:
    """The score of an open node."""
    if not fits_beside_cards(nodes, row, shape):
        return NO_ROOM
    units = look_at_cards(nodes, cards, row, shape, space)
    if not enough(units, shape[0, c.COUNT]):
        return NO_ROOM
    if shape[0, c.NEEDS] and not decide(nodes, cards, row, shape, units, store, FIT, 0):
        return NO_ROOM
    return rank(node, nodes, cards, row, shape, units, store, said, state)


@compiled
def look_at_zones(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, store: Rows) -> Rows:
    """The cards that a unit may have on a node that takes it."""
    units = look_at_cards(nodes, cards, row, shape, space)
    if shape[0, c.NEEDS]:
        decide(nodes, cards, row, shape, units, store, TAKE, 0)
    return units


@inlined
def rank(
    node: Callable[..., Any],
    nodes: Rows,
    cards: Rows,
    row: int,
    shape: Rows,
    units: Rows,
    store: Rows,
    said: Rows,
    state: Any,
) -> float:
    """How good a node is for a request that fits there: the strategy's word, preferred terms, near zones."""
    found = float(node(nodes, cards, row, shape, units, state, said[row, c.TABLE_COLUMNS :]) + said[row, c.BONUS])
    if not shape[0, c.NEEDS]:
        return found
    verdict = verdict_in(store)
    if shape[len(shape) - shape[0, c.NAMED] - shape[0, c.NEEDS], b.WIDEST]:
        said[row, c.SPAN] = verdict[b.SPAN]
    return found + closeness_of(shape, verdict)


@inlined
def _refresh(
    node: Callable[..., Any],
    follow: Callable[..., None],
    nodes: Rows,
    cards: Rows,
    newest: int,
    since: int,
    shape: Rows,
    space: Rows,
    store: Rows,
    said: Rows,
    tree: Scores,
    state: Any,
) -> None:
    size, row = len(tree) // 2, newest
    while row >= 0 and nodes[row, c.CHANGED] >= since:
        follow(nodes, cards, row, state)
        stays_full = tree[size + row] == NO_ROOM and nodes[row, c.FREED] < since
        if said[row, c.OPEN] and not stays_full:
            enter(tree, row, score(node, nodes, cards, row, shape, space, store, said, state))
        row = nodes[row, c.BEFORE]


@inlined
def _charge(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, store: Rows, mode: int, chosen: Rows) -> None:
    """Take a unit, whose zones were just decided, out of the rows of a node, its cards and what lies in its zones."""
    charge_unit(nodes, cards, row, shape, mode, chosen)
    if shape[0, c.NEEDS]:
        decide(nodes, cards, row, shape, space, store, SPEND, 0)


@cache
def loops_over(
    node: Callable[..., Any], pick: Callable[..., Any], select: Callable[..., Any], follow: Callable[..., Any]
) -> Loops:
    """Compile the loops around a strategy's functions (see `core/strategies/strategy.py`).

    What they close over must read the same in every process, or they would be compiled anew in each.
    """

    @compiled
    def judge(
        nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, said: Rows, tree: Scores, state: Any
    ) -> None:
        follow(nodes, cards, row, state)
        fits = said[row, c.OPEN] and fits_beside_cards(nodes, row, shape) and enough(units, shape[0, c.COUNT])
        if fits and shape[0, c.NEEDS]:
            fits = decide(nodes, cards, row, shape, units, store, TAKE, 0) != 0
        enter(tree, row, rank(node, nodes, cards, row, shape, units, store, said, state) if fits else NO_ROOM)

    @compiled
    def fill(
        nodes: Rows, cards: Rows, shape: Rows, space: Rows, store: Rows, said: Rows, tree: Scores, state: Any
    ) -> None:
        size = len(tree) // 2
        for row in range(len(nodes)):
            follow(nodes, cards, row, state)
            tree[size + row] = NO_ROOM
            if said[row, c.OPEN]:
                tree[size + row] = score(node, nodes, cards, row, shape, space, store, said, state)
        grow(tree)

    @compiled
    def refresh(
        nodes: Rows,
        cards: Rows,
        newest: int,
        since: int,
        shape: Rows,
        space: Rows,
        store: Rows,
        said: Rows,
        tree: Scores,
        state: Any,
    ) -> None:
        _refresh(node, follow, nodes, cards, newest, since, shape, space, store, said, tree, state)

    @compiled
    def choose(
        nodes: Rows,
        cards: Rows,
        newest: int,
        since: int,
        shape: Rows,
        space: Rows,
        store: Rows,
        said: Rows,
        tree: Scores,
        state: Any,
        out: Rows,
        clock: int,
        mode: int,
    ) -> int:
        _refresh(node, follow, nodes, cards, newest, since, shape, space, store, said, tree, state)
        row = select(nodes, cards, shape, space, said, tree, state)
        if row >= 0 and (shape[0, c.COUNT] or shape[0, c.NEEDS]):
            units = look_at_zones(nodes, cards, row, shape, space, store)
            pick(nodes, cards, row, shape, units, state, out)
        if row >= 0 and mode:
            _charge(nodes, cards, row, shape, space, store, mode, out)
            touch(nodes, newest, clock, row, 1)
        return int(row)

    return Loops(judge, fill, refresh, choose)
