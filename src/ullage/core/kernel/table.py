"""The compiled loops of a strategy: bring a table up to date, and take the best from it.

A table has a row per node in `node_state` (the columns of `core/kernel/columns.py`, then the notes of the strategy)
and the scores in `tree`. Nodes are chained in the order of their changes, from `newest` on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ullage.core.kernel import board as b
from ullage.core.kernel import columns as c
from ullage.core.kernel.alignment import closeness_of, first_need
from ullage.core.kernel.board import verdict_in
from ullage.core.kernel.charge import charge_unit, touch
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.room import enough, fits_beside_cards, look_at_cards
from ullage.core.kernel.tree import NO_ROOM, enter, grow, winner
from ullage.core.kernel.zones import FIT, SPEND, TAKE, decide


@inlined
def first_best(nodes: Rows, cards: Rows, shape: Rows, scratch: Rows, node_state: Rows, tree: Scores, state: Any) -> int:
    """Return the first node with the best score: most strategies select it."""
    return winner(tree)


@inlined
def follow_nothing(nodes: Rows, cards: Rows, row: int, state: Any) -> None:
    """Ignore a changed node: most strategies keep no state of nodes."""


@inlined
def equal_cards(cards: Rows, card: int, shape: Rows, state: Any) -> float:
    """Score all cards the same: for strategies that score nodes only."""
    return 0.0


class Loops(NamedTuple):
    """The compiled loops of one strategy.

    `judge` enters the score of a node, of which the given cards take a share. `fill` enters the score of every node,
    and `refresh` of those that changed since a clock. `choose` refreshes, returns the best node or -1, and writes its
    cards into `out`. With a `mode` (how its cards are held) it also charges the unit to the rows, at this clock.
    """

    judge: Callable[..., None]
    fill: Callable[..., None]
    refresh: Callable[..., None]
    choose: Callable[..., int]


class Query(NamedTuple):
    """A request on the books: rows of nodes and cards, its shape, scratch for the cards of a node, and the arena."""

    nodes: Rows
    cards: Rows
    shape: Rows
    scratch: Rows
    arena: Rows


@inlined
def score(node: Callable[..., Any], query: Query, row: int, node_state: Rows, state: Any) -> float:
    """Return the score of an open node."""
    nodes, cards, shape = query.nodes, query.cards, query.shape
    if not fits_beside_cards(nodes, row, shape):
        return NO_ROOM
    fits_per_card = look_at_cards(nodes, cards, row, shape, query.scratch)
    if not enough(fits_per_card, shape[0, c.COUNT]):
        return NO_ROOM
    if shape[0, c.NEEDS] and not decide(nodes, cards, row, shape, fits_per_card, query.arena, FIT, 0):
        return NO_ROOM
    return rank(node, query, row, fits_per_card, node_state, state)


@compiled
def look_at_zones(query: Query, row: int) -> Rows:
    """Return which cards a unit may have on a node that takes it."""
    fits_per_card = look_at_cards(query.nodes, query.cards, row, query.shape, query.scratch)
    if query.shape[0, c.NEEDS]:
        decide(query.nodes, query.cards, row, query.shape, fits_per_card, query.arena, TAKE, 0)
    return fits_per_card


@inlined
def rank(node: Callable[..., Any], query: Query, row: int, fits_per_card: Rows, node_state: Rows, state: Any) -> float:
    """Return the score of a node on which the request fits: of the strategy, of preferred terms, of near zones."""
    nodes, cards, shape, notes = query.nodes, query.cards, query.shape, node_state[row, c.TABLE_COLUMNS :]
    found = float(node(nodes, cards, row, shape, fits_per_card, state, notes) + node_state[row, c.BONUS])
    if not shape[0, c.NEEDS]:
        return found
    verdict = verdict_in(query.arena)
    if shape[first_need(shape), b.WIDEST]:
        node_state[row, c.SPAN] = verdict[b.SPAN]
    return found + closeness_of(shape, verdict)


@inlined
def _refresh(
    node: Callable[..., Any],
    follow: Callable[..., None],
    query: Query,
    newest: int,
    since: int,
    node_state: Rows,
    tree: Scores,
    state: Any,
) -> None:
    nodes, cards, size, row = query.nodes, query.cards, len(tree) // 2, newest
    while row >= 0 and nodes[row, c.CHANGED] >= since:
        follow(nodes, cards, row, state)
        stays_full = tree[size + row] == NO_ROOM and nodes[row, c.FREED] < since
        if node_state[row, c.OPEN] and not stays_full:
            enter(tree, row, score(node, query, row, node_state, state))
        row = nodes[row, c.BEFORE]


@inlined
def charge_with_zones(query: Query, row: int, mode: int, chosen: Rows) -> None:
    """Charge a unit, whose zones were just decided, to a node, its cards and the supplies in its zones."""
    charge_unit(query.nodes, query.cards, row, query.shape, mode, chosen)
    if query.shape[0, c.NEEDS]:
        decide(query.nodes, query.cards, row, query.shape, query.scratch, query.arena, SPEND, 0)


@cache
def loops_over(
    node: Callable[..., Any], pick: Callable[..., Any], select: Callable[..., Any], follow: Callable[..., Any]
) -> Loops:
    """Compile the loops around a strategy's functions (see `core/strategies/strategy.py`).

    The values that these functions close over must read the same in every process, or each would compile them again.
    """
    judge, fill = _scoring_over(node, follow)
    refresh, choose = _choosing_over(node, pick, select, follow)
    return Loops(judge, fill, refresh, choose)


def _scoring_over(
    node: Callable[..., Any], follow: Callable[..., Any]
) -> tuple[Callable[..., None], Callable[..., None]]:
    @compiled
    def judge(
        nodes: Rows,
        cards: Rows,
        row: int,
        shape: Rows,
        fits_per_card: Rows,
        arena: Rows,
        node_state: Rows,
        tree: Scores,
        state: Any,
    ) -> None:
        query = Query(nodes, cards, shape, fits_per_card, arena)
        follow(nodes, cards, row, state)
        fits = node_state[row, c.OPEN] and fits_beside_cards(nodes, row, shape)
        fits = fits and enough(fits_per_card, shape[0, c.COUNT])
        if fits and shape[0, c.NEEDS]:
            fits = decide(nodes, cards, row, shape, fits_per_card, arena, TAKE, 0) != 0
        enter(tree, row, rank(node, query, row, fits_per_card, node_state, state) if fits else NO_ROOM)

    @compiled
    def fill(
        nodes: Rows, cards: Rows, shape: Rows, scratch: Rows, arena: Rows, node_state: Rows, tree: Scores, state: Any
    ) -> None:
        query, size = Query(nodes, cards, shape, scratch, arena), len(tree) // 2
        for row in range(len(nodes)):
            follow(nodes, cards, row, state)
            tree[size + row] = NO_ROOM
            if node_state[row, c.OPEN]:
                tree[size + row] = score(node, query, row, node_state, state)
        grow(tree)

    return judge, fill


def _choosing_over(
    node: Callable[..., Any], pick: Callable[..., Any], select: Callable[..., Any], follow: Callable[..., Any]
) -> tuple[Callable[..., None], Callable[..., int]]:
    @compiled
    def refresh(
        nodes: Rows,
        cards: Rows,
        newest: int,
        since: int,
        shape: Rows,
        scratch: Rows,
        arena: Rows,
        node_state: Rows,
        tree: Scores,
        state: Any,
    ) -> None:
        query = Query(nodes, cards, shape, scratch, arena)
        _refresh(node, follow, query, newest, since, node_state, tree, state)

    @compiled
    def choose(
        nodes: Rows,
        cards: Rows,
        newest: int,
        since: int,
        shape: Rows,
        scratch: Rows,
        arena: Rows,
        node_state: Rows,
        tree: Scores,
        state: Any,
        out: Rows,
        clock: int,
        mode: int,
    ) -> int:
        query = Query(nodes, cards, shape, scratch, arena)
        _refresh(node, follow, query, newest, since, node_state, tree, state)
        row = select(nodes, cards, shape, scratch, node_state, tree, state)
        if row >= 0 and (shape[0, c.COUNT] or shape[0, c.NEEDS]):
            pick(nodes, cards, row, shape, look_at_zones(query, row), state, out)
        if row >= 0 and mode:
            charge_with_zones(query, row, mode, out)
            touch(nodes, newest, clock, row, 1)
        return int(row)

    return refresh, choose
