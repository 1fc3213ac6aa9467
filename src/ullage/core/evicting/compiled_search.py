"""The compiled search for victims of one request: the cheapest set on a node, and the cheapest nodes for units of it.

It works on copies of the rows of the books, so that the books stay as they are. It is for requests whose room is a
matter of sums (`summable`) and that the quotas allow anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from ullage.core.books.modes import mode_asked
from ullage.core.books.occupancy import Occupancy
from ullage.core.evicting.protection import Protection
from ullage.core.evicting.victims import Budgets, Cost, EvictionContext
from ullage.core.kernel import columns as at
from ullage.core.kernel import victims as kernel
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.occupants import WORKLOAD, BookRows
from ullage.core.strategies import strategy_named
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Allocation
from ullage.model.claim import Request


class PlacedUnit(NamedTuple):
    """The place of one unit: the node, its cards, and its victims, the dearest first, with their cost."""

    row: int
    cards: list[int]
    victims: list[Allocation]
    cost: Cost | None


class CompiledSearch:
    """Finds victims for one request, on a copy of the books at the time of its creation.

    It finds no room on `locked` cards.
    """

    def __init__(
        self, context: EvictionContext, request: Request, protection: Protection, locked: Iterable[int]
    ) -> None:
        self._context, self._request, self._protection = context, request, protection
        self._fleet = fleet = context.fleet
        self._occupancy = Occupancy.of(fleet)
        there = self._there = self._occupancy.columns()
        shape = shape_of(fleet, request.requirement).rows.copy()
        shape[0, at.CAP] = context.rules.cap
        space = np.zeros(int(np.diff(fleet.gpu_start).max(initial=0)), np.int64)
        board = fleet.board.copy()
        nodes, cards = fleet.node_rows.copy(), fleet.card_rows.copy()
        closed = np.zeros(len(cards), np.int64)
        closed[list(locked)] = True
        held = board.supplies, there.entries, there.charges, np.zeros(len(there.charges), np.int64)
        self._books = BookRows(nodes, cards, *held, shape=shape, space=space, locked=closed, store=board.store)
        self._status, self._turn = np.zeros(len(there.who), np.int64), np.full(len(there.who), -1)
        numbers, left = self._numbered(context.budgets)
        self._occupants = kernel.OccupantColumns(there.first, there.since, self._status, numbers, turn=self._turn)
        rows = len(nodes) + 2
        self._costs = kernel.VictimCosts(
            amounts=np.zeros((rows, kernel.COST_COLUMNS), np.int64),
            since=np.zeros(rows),
            left=left,
            taken=np.zeros_like(left),
        )
        self._kept = kernel.NodeBefore(
            modes=np.zeros(len(cards), np.int64),
            node=nodes[:1].copy(),
            cards=cards[: len(space)].copy(),
            status=self._status.copy(),
            supplies=board.supplies[:, 0].copy(),
        )

    def victims_on(self, row: int, may_go: Collection[Allocation]) -> list[Allocation] | None:
        """Return the cheapest set of victims on one node, the dearest first; None if no set suffices."""
        uids, here = {allocation.id for allocation in may_go}, range(*self._there.first[row : row + 2].tolist())
        for entry in here:
            self._status[entry] = self._there.who[entry].id in uids
        found = kernel.look(self._books, self._occupants, self._costs, self._kept, row)
        victims = [self._there.who[entry] for entry in here if self._status[entry] == kernel.VICTIM]
        kernel.put_back(self._books, self._occupants, self._kept, row)
        return victims if found else None

    def units(self, count: int) -> list[PlacedUnit]:
        """Return the places of up to `count` units, each on the node where it costs least after those before it.

        Call it once only: it changes the copies of the books. A strategy that follows the fleet is replaced by best
        fit, because the copies are not the fleet.
        """
        fleet, asked = self._fleet, self._request.requirement
        strategy = self._context.rules.strategy_of(self._request)
        strategy = strategy if strategy.stateless else strategy_named("best-fit")
        self._status[:] = self._protection.may_go(self._occupancy)
        may_take = fleet.schedulable & fleet.exclusion.allowed(asked.nodes)
        found = kernel.UnitRows(
            at_row=np.zeros(count, np.int64),
            at_cards=np.zeros((count, asked.gpu_count), np.int64),
            paid=np.zeros((count, kernel.COST_COLUMNS), np.int64),
            since=np.zeros(count),
        )
        placed = strategy.evict(
            self._books,
            self._occupants,
            self._costs,
            self._kept,
            may_take.astype(np.int64),
            strategy.state,
            mode_asked(asked),
            found,
        )
        victims: list[list[Allocation]] = [[] for _ in range(placed)]
        gone = np.nonzero(self._turn >= 0)[0]
        for entry, unit in zip(gone.tolist(), self._turn[gone].tolist(), strict=True):
            victims[unit].append(self._there.who[entry])
        units = []
        for unit, evicted in enumerate(victims):
            row, since = found.at_row.item(unit), found.since.item(unit)
            violations, highest, priorities, number = found.paid[unit].tolist()
            cost = Cost(
                violations=violations,
                highest=highest,
                priorities=priorities,
                number=number,
                age_s=self._context.now - since,
                node=fleet.nodes[row].name,
            )
            units.append(PlacedUnit(row, found.at_cards[unit].tolist(), evicted, cost if evicted else None))
        return units

    def _numbered(self, budgets: Budgets) -> tuple[Rows, Rows]:
        """Return per entry the number of its budget, -1 for none, and what is left of each budget."""
        workloads = self._there.entries[:, WORKLOAD]
        if not budgets.left:
            return np.full(len(workloads), -1), np.zeros(0, np.int64)
        known = [self._occupancy.number(*key) for key in budgets.left]
        of = np.full(self._occupancy.names + 1, -1)  # the last is for those of no workload
        of[known] = np.arange(len(known))
        numbers = of[workloads]
        if budgets.of:
            number = {key: n for n, key in enumerate(budgets.left)}
            for entry, allocation in enumerate(self._there.who):
                if (key := budgets.of.get(allocation.id)) is not None:
                    numbers[entry] = number.get(key, -1)
        return numbers, np.array(list(budgets.left.values()), np.int64)
