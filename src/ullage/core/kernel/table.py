"""The compiled loops of a strategy: bring a table up to date, and take the best from it.

A table has a row per node in `said` (room, whether the node is open, what preferred terms add, then what the
strategy notes) and the scores in `tree`. `log` is the ring of changed nodes: at clock c, row `log[c % len(log)]`
changed. `space` has room for the cards of any node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ullage.core.kernel.columns import BONUS, CHANGED, COUNT, OPEN, ROOM, TABLE_COLUMNS, Rows, Scores
from ullage.core.kernel.compiled import code_of, compiled, inlined
from ullage.core.kernel.room import look_at_cards, room_on
from ullage.core.kernel.tree import NO_ROOM, enter, grow, winner


@inlined
def first_best(nodes: Rows, cards: Rows, shape: Rows, space: Rows, said: Rows, tree: Scores, state: Any) -> int:
    """The first node with the best score: how most strategies select."""
    return winner(tree)


@inlined
def heedless(nodes: Rows, cards: Rows, row: int, state: Any) -> None:
    """Nothing is kept of a node that changed: how most strategies follow."""


class Loops(NamedTuple):
    """What is compiled for the functions of one strategy.

    `judge` enters a node whose cards have the given room; `fill` judges every node, `refresh` those that
    changed from one clock to before another; `choose` refreshes, gives the best node or -1, and writes its
    cards into `out`.
    """

    judge: Callable[..., None]
    fill: Callable[..., None]
    refresh: Callable[..., None]
    choose: Callable[..., int]


@inlined
def scored(
    node: Callable[..., Any], nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, said: Rows, state: Any
) -> float:
    """Write the room of a node and give its score."""
    room = room_on(nodes, row, shape, units) if said[row, OPEN] else 0
    said[row, ROOM] = room
    if room == 0:
        return NO_ROOM
    return float(node(nodes, cards, row, shape, units, state, said[row, TABLE_COLUMNS:]) + said[row, BONUS])


@inlined
def _refresh(
    node: Callable[..., Any],
    follow: Callable[..., None],
    nodes: Rows,
    cards: Rows,
    log: Rows,
    since: int,
    now: int,
    shape: Rows,
    space: Rows,
    said: Rows,
    tree: Scores,
    state: Any,
) -> None:
    for clock in range(since, now):
        row = log[clock % len(log)]
        if nodes[row, CHANGED] != clock:
            continue  # it changed again later
        follow(nodes, cards, row, state)
        if said[row, OPEN]:
            units = look_at_cards(nodes, cards, row, shape, space)
            enter(tree, row, scored(node, nodes, cards, row, shape, units, said, state))


@cache
def loops_over(
    node: Callable[..., Any], pick: Callable[..., Any], select: Callable[..., Any], follow: Callable[..., Any]
) -> Loops:
    """Compile the loops around a strategy's functions (see `core/strategies/strategy.py`).

    What they close over must read the same in every process, or they would be compiled anew in each.
    """
    key = code_of(node, pick, select, follow, scored, _refresh, look_at_cards, grow)

    @compiled
    def judge(
        nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, said: Rows, tree: Scores, state: Any
    ) -> None:
        key  # noqa: B018  part of the cache key, see `code_of`
        follow(nodes, cards, row, state)
        enter(tree, row, scored(node, nodes, cards, row, shape, units, said, state))

    @compiled
    def fill(nodes: Rows, cards: Rows, shape: Rows, space: Rows, said: Rows, tree: Scores, state: Any) -> None:
        key  # noqa: B018  as above
        size = len(tree) // 2
        for row in range(len(nodes)):
            follow(nodes, cards, row, state)
            units = look_at_cards(nodes, cards, row, shape, space)
            tree[size + row] = scored(node, nodes, cards, row, shape, units, said, state)
        grow(tree)

    @compiled
    def refresh(
        nodes: Rows,
        cards: Rows,
        log: Rows,
        since: int,
        now: int,
        shape: Rows,
        space: Rows,
        said: Rows,
        tree: Scores,
        state: Any,
    ) -> None:
        key  # noqa: B018  as above
        _refresh(node, follow, nodes, cards, log, since, now, shape, space, said, tree, state)

    @compiled
    def choose(
        nodes: Rows,
        cards: Rows,
        log: Rows,
        since: int,
        now: int,
        shape: Rows,
        space: Rows,
        said: Rows,
        tree: Scores,
        state: Any,
        out: Rows,
    ) -> int:
        key  # noqa: B018  as above
        _refresh(node, follow, nodes, cards, log, since, now, shape, space, said, tree, state)
        row = select(nodes, cards, shape, space, said, tree, state)
        if row >= 0 and shape[0, COUNT]:
            units = look_at_cards(nodes, cards, row, shape, space)
            pick(nodes, cards, row, shape, units, state, out)
        return int(row)

    return Loops(judge, fill, refresh, choose)
