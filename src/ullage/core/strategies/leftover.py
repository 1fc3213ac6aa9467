"""Our own placement: what a task spoils of a node, and what it takes from tasks that few places can hold.

The cost of a placement, smallest first, is in thousandths of a card:

    growth of the expected leftover of the node (`core/kernel/leftover.py`)
    + the slots of scarce classes and of tasks without cards that it takes, at their prices (`core/kernel/prices.py`)
    + the cards that it takes, at the price of their model

The growth depends on the node alone and is noted per node and option; prices depend on the whole fleet and
change with every placement. A part of one card has two options, for they take different slots: the card in
use where the leftover grows least, and an idle card. Ties fall to the node with the least idle, then the
least free CPU, then the first by name. Where two books or partitions decide, prices do not count.
"""

from __future__ import annotations

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import task_class
from ullage.core.kernel.columns import KIND, Rows
from ullage.core.kernel.known import BUDGET, FILLS, LEFT, MEMO_SLOTS, groups_of, nothing_known
from ullage.core.kernel.leftover_cost import (
    CLOSED,
    IDLE_OF,
    NEVER,
    NOTES,
    SEEN,
    SHARES,
    follow,
    node,
    pick,
    select,
    terms,
)
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

    With `live` the workload is an estimate: wide tasks that the fleet invites may come though none has been
    seen, and wide tasks may be more frequent than they were. `slots` is how many states of nodes the memo
    has room for (a power of two), `fills` how often each is filled, `budget` how many are between two selections.
    """
    mix, models = workload.on(fleet), min(len(fleet.kinds), MOST_KINDS) + 1
    without = bare(mix, _cards_per_cpu(fleet))
    priced = scarce(mix, workload.tasks, rows_of(may_come(fleet), fleet) if live else None)
    rate, value = np.concatenate([priced.rate, without.rate]), np.concatenate([priced.value, without.value])
    nodes, size = len(fleet.nodes), float(mix.popularity @ (mix.classes[:, SHARE] * mix.classes[:, CARDS]))
    cpu = float(mix.popularity @ mix.classes[:, task_class.CPU])
    cards, slotted = int(np.diff(fleet.gpu_start).max(initial=0)), len(priced.rate)
    scale = [fills] * models + [1] * slotted + [fills] * len(without.sizes) + [1] * IDLE_OF
    state = (
        nothing_known(mix, cards, without.sizes, slots, fills, budget),
        priced.classes,
        tuple(named(mix, models)),
        (max(1.0, cpu), max(1.0, size)),
        rate,
        value,
        _first_look(fleet, groups_of(mix.classes, models), cards),
        np.zeros((nodes, LEFT + 1 + len(without.sizes)), np.int64),
        np.zeros((nodes, slotted), np.int64),
        np.zeros((nodes, slotted), np.int64),
        np.zeros(len(scale), np.int64),
        np.array(scale),
        np.zeros(len(scale)),
        np.zeros(len(scale) - IDLE_OF),
        np.zeros(len(scale), np.int64),
        np.zeros(2, np.int64),
        np.zeros(NOTES + 2 * cards, np.int64),
        np.zeros(len(without.sizes), np.int64),
    )
    return Strategy(NAME, node, equal_cards, pick, state, select, follow, NOTES, terms, near=True)


def _cards_per_cpu(fleet: Fleet) -> float:
    """Thousandths of cards per milli CPU, of what takes work."""
    cards = fleet.card_usable & fleet.schedulable[fleet.card_row]
    return CARD * int(cards.sum()) / max(1, int(fleet.cpu_total[fleet.schedulable].sum()))


def _first_look(fleet: Fleet, groups: list[int], cards_of_node: int) -> Rows:
    """Return what nodes are; a node without cards has the last model, which no class names."""
    kept = np.zeros((len(fleet.nodes), SHARES + cards_of_node), dtype=np.int64)
    kept[:, SEEN] = NEVER
    for row, each in enumerate(fleet.nodes):
        cards, last = fleet.cards_on(row), len(groups) - 1
        model = min(fleet.card_rows.item(cards.start, KIND), last) if cards else last
        closed = sum(1 << min(k, 62) for k, card in enumerate(cards) if not fleet.card_usable[card])
        kept[row, : CLOSED + 1] = model, groups[model], closed if each.schedulable else -1
    return kept
