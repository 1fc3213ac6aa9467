"""The strategy that keeps room for tasks that few nodes can hold, and leaves few fragments.

The cost of a placement, smallest first, is in thousandths of a card:

    growth of the expected leftover of the node (`core/kernel/leftover.py`)
    + the slots of scarce classes and of tasks without cards that it takes, at their prices (`core/kernel/prices.py`)
    + the cards that it takes, at the price of their model

The growth depends on the node alone and is rows per node and option. Prices depend on the whole fleet and change
with every placement. A part of one card has two options, which take different slots: the card in use where the
leftover grows least, and an idle card. Ties go to the node with the least idle cards, then the least free CPU, then
the first by name. Where two books or partitions decide, prices are left out.
"""

from __future__ import annotations

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import task_class
from ullage.core.kernel.columns import KIND, Rows
from ullage.core.kernel.leftover_cost import (
    CLOSED,
    IDLE_GOODS,
    NEVER,
    NOTES,
    SEEN,
    SHARES,
    LeftoverState,
    follow,
    node,
    pick,
    select,
    terms,
)
from ullage.core.kernel.leftover_memo import BUDGET, FILLS, LEFT, MEMO_SLOTS, empty_memo, groups_of
from ullage.core.kernel.prices import bare, named, scarce
from ullage.core.kernel.shares import CARD
from ullage.core.kernel.table import equal_cards
from ullage.core.kernel.task_class import CARDS, MOST_KINDS, SHARE
from ullage.core.strategies.strategy import Strategy
from ullage.core.strategies.workload import Workload, may_come, rows_of

NAME = "leftover"


def leftover(
    fleet: Fleet,
    workload: Workload,
    *,
    live: bool = False,
    slots: int = MEMO_SLOTS,
    fills: int = FILLS,
    budget: int = BUDGET,
) -> Strategy:
    """Return the strategy for one fleet and workload, which must have a class.

    With `live` the workload is an estimate: wide tasks that the fleet invites may arrive though none has been
    seen, and wide tasks may be more frequent than so far. `slots` is the number of node states that the memo has room
    for (a power of two), `fills` the fills of each, `budget` how many are filled between two selections.
    """
    mix, models = workload.on(fleet), min(len(fleet.kinds), MOST_KINDS) + 1
    without = bare(mix, _cards_per_cpu(fleet))
    priced = scarce(mix, workload.tasks, rows_of(may_come(fleet), fleet) if live else None)
    rate, value = np.concatenate([priced.rate, without.rate]), np.concatenate([priced.value, without.value])
    nodes, size = len(fleet.nodes), float(mix.popularity @ (mix.classes[:, SHARE] * mix.classes[:, CARDS]))
    cpu = float(mix.popularity @ mix.classes[:, task_class.CPU])
    cards, slotted = int(np.diff(fleet.gpu_start).max(initial=0)), len(priced.rate)
    scale = [fills] * models + [1] * slotted + [fills] * len(without.sizes) + [1] * IDLE_GOODS
    state = LeftoverState(
        memo=tuple(empty_memo(mix, cards, without.sizes, slots=slots, fills=fills, budget=budget)),
        scarce=priced.classes,
        named=tuple(named(mix, models)),
        mean_cpu=max(1.0, cpu),
        mean_size=max(1.0, size),
        rate=rate,
        value=value,
        of_node=_facts_of_nodes(fleet, groups_of(mix.classes, models), cards),
        now=np.zeros((nodes, LEFT + 1 + len(without.sizes)), np.int64),
        roomy=np.zeros((nodes, slotted), np.int64),
        held=np.zeros((nodes, slotted), np.int64),
        amounts=np.zeros(len(scale), np.int64),
        scale=np.array(scale),
        have=np.zeros(len(scale)),
        prices=np.zeros(len(scale) - IDLE_GOODS),
        dear=np.zeros(len(scale), np.int64),
        counts=np.zeros(2, np.int64),
        scratch=np.zeros(NOTES + 2 * cards, np.int64),
        lost=np.zeros(len(without.sizes), np.int64),
    )
    return Strategy(
        NAME,
        node,
        equal_cards,
        pick,
        state=tuple(state),
        select=select,
        follow=follow,
        notes=NOTES,
        terms=terms,
        near=True,
    )


def _cards_per_cpu(fleet: Fleet) -> float:
    """Return the thousandths of cards per milli CPU, of what takes work."""
    cards = fleet.card_usable & fleet.schedulable[fleet.card_row]
    return CARD * int(cards.sum()) / max(1, int(fleet.cpu_total[fleet.schedulable].sum()))


def _facts_of_nodes(fleet: Fleet, groups: list[int], cards_of_node: int) -> Rows:
    """Return the rows of nodes; a node without cards has the last model, which no class names."""
    rows = np.zeros((len(fleet.nodes), SHARES + cards_of_node), dtype=np.int64)
    rows[:, SEEN] = NEVER
    for row, each in enumerate(fleet.nodes):
        cards, last = fleet.cards_on(row), len(groups) - 1
        model = min(fleet.card_rows.item(cards.start, KIND), last) if cards else last
        closed = sum(1 << min(k, 62) for k, card in enumerate(cards) if not fleet.card_usable[card])
        rows[row, : CLOSED + 1] = model, groups[model], closed if each.schedulable else -1
    return rows
