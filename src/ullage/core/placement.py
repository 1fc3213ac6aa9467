"""Where a request goes: one table of room and score per request shape, refreshed row by row.

A shape is what decides placement: equal requirements under one strategy share a table. When an
allocation touches a node only that row is computed again, so a decision does not rescan the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ullage.core.filters import EXCLUSION, charges_on, units_on
from ullage.core.fleet import Column, Fleet
from ullage.core.policy import Policy
from ullage.core.strategies import strategy_named
from ullage.core.strategies.strategy import Strategy
from ullage.model.affinity import ANY_NODE
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement

_NO_ROOM = -1

_MAX_TABLES = 1024
"""Request shapes remembered at a time; ones beyond cost their table again."""

UNREACHABLE = 2**62
"""Larger than any node: requests beyond the range of a column are cut to it."""


class Placer:
    """Places requests on one fleet, charging it as it goes.

    `strategy` goes before the policy's; `cap` bounds the allocations on a node instead of the node's
    own `max_executors`.
    """

    def __init__(self, fleet: Fleet, policy: Policy, strategy: Strategy | None = None, cap: int | None = None) -> None:
        self.fleet = fleet
        self._strategy = strategy or strategy_named(policy.strategy)
        self._cap = cap

    def room(self, requirement: ResourceRequirement) -> Column:
        """Per node, how many units of this requirement fit now."""
        return self.table(requirement).room

    def place(
        self, allocation_id: str, requirement: ResourceRequirement, also: Placer | None = None
    ) -> Allocation | None:
        """Pick a node and cards, charge them here and in `also`, and return the allocation.

        With `also`, a place counts only if it is free in both books: now, and in the outlook where
        capacity is held for somebody else. None means nothing fits.
        """
        table = self.table(requirement)
        ranked = table.ranked
        if also is not None:
            ranked = np.where(also.room(requirement) > 0, ranked, _NO_ROOM)
        while len(ranked):
            row = int(ranked.argmax())
            if ranked[row] == _NO_ROOM:
                break
            cards = table.pick(row, None if also is None else also.table(requirement))
            if cards is not None:
                allocation = Allocation(
                    allocation_id,
                    self.fleet.nodes[row].name,
                    requirement,
                    self.fleet.uuids(cards),
                    charges=charges_on(self.fleet, cards, requirement),
                )
                self.fleet.charge(allocation)
                if also is not None:
                    also.fleet.charge(allocation)
                return allocation
            ranked = ranked.copy()
            ranked[row] = _NO_ROOM
        return None

    def table(self, requirement: ResourceRequirement) -> Table:
        """The table of this shape, up to date."""
        key = (requirement, self._strategy, self._cap)
        table = self.fleet.tables.get(key)
        if not isinstance(table, Table):
            if len(self.fleet.tables) >= _MAX_TABLES:
                self.fleet.tables.clear()
            table = self.fleet.tables[key] = Table(self.fleet, requirement, self._strategy, self._cap)
        table.refresh()
        return table


class Table:
    """Room and rank of every node for one requirement."""

    def __init__(
        self, fleet: Fleet, requirement: ResourceRequirement, strategy: Strategy, cap: int | None = None
    ) -> None:
        self._fleet = fleet
        self._asked = requirement
        self._strategy = strategy
        self._cap = cap
        self._clock = fleet.clock
        self._allowed = self._excluded_left_out() if requirement.gpu_count else {}
        self.room: Column = np.zeros(len(fleet.nodes), dtype=np.int64)
        self.ranked: Column = np.full(len(fleet.nodes), _NO_ROOM, dtype=np.int64)
        self._compute(range(len(fleet.nodes)))

    def _excluded_left_out(self) -> dict[int, list[int]]:
        """Per node, the cards that freed capacity could make eligible."""
        allowed: dict[int, list[int]] = {}
        for card in range(len(self._fleet.cards)):
            if EXCLUSION.first(self._fleet, card, self._asked) is None:
                allowed.setdefault(int(self._fleet.card_row[card]), []).append(card)
        return allowed

    def refresh(self) -> None:
        """Bring the rows up to date that were touched since the last look."""
        if self._clock != self._fleet.clock:
            rows = self._fleet.touched_since(self._clock)
            self._compute(range(len(self.room)) if rows is None else rows)
            self._clock = self._fleet.clock

    def eligible(self, row: int) -> list[int]:
        """Cards of a node that can take a share of one unit now."""
        fleet, asked = self._fleet, self._asked
        return [card for card in self._allowed.get(row, ()) if units_on(fleet, card, asked)]

    def pick(self, row: int, also: Table | None = None) -> list[int] | None:
        """Cards for one unit, free in the books of `also` too; None if they are not enough."""
        if not self._asked.gpu_count:
            return []
        eligible = self.eligible(row)
        if also is not None:
            there = set(also.eligible(row))
            eligible = [card for card in eligible if card in there]
        if len(eligible) < self._asked.gpu_count:
            return None
        return self._strategy.pick(self._fleet, self._asked, eligible)

    def _compute(self, rows: Iterable[int]) -> None:
        for row in rows:
            room, eligible = self._room_on(row)
            self.room[row] = room
            self.ranked[row] = self.score(row, eligible) if room else _NO_ROOM

    def score(self, row: int, eligible: list[int]) -> int:
        """How good a node is: the strategy's score and what the preferred terms add."""
        score = self._strategy.node(self._fleet, row, self._asked, eligible)
        node = self._fleet.nodes[row]
        return score if self._asked.nodes is ANY_NODE else score + self._asked.nodes.bonus(node.name, node.labels)

    def _room_on(self, row: int) -> tuple[int, list[int]]:
        """Units that fit on a node, and the cards that could take a share of one."""
        fleet, asked = self._fleet, self._asked
        if not fleet.schedulable[row] or not self._may_run_on(row):
            return 0, []
        room = self._slots_on(row)
        for free, need in ((fleet.cpu_free, asked.cpu_milli), (fleet.memory_free, asked.memory_bytes)):
            if need:
                room = min(room, max(0, int(free[row])) // min(need, UNREACHABLE))
        if not room or not asked.gpu_count:
            return room, []
        allowed = self._allowed.get(row, ())
        per_card = [units_on(fleet, card, asked) for card in allowed]
        eligible = [card for card, units in zip(allowed, per_card, strict=True) if units]
        return min(room, _units_over(per_card, asked.gpu_count)), eligible

    def _may_run_on(self, row: int) -> bool:
        node = self._fleet.nodes[row]
        return self._asked.nodes is ANY_NODE or self._asked.nodes.allows(node.name, node.labels)

    def _slots_on(self, row: int) -> int:
        if self._cap is None:
            return max(0, int(self._fleet.slots_free[row]))
        return max(0, self._cap - self._fleet.workers(row))


def _units_over(per_card: list[int], count: int) -> int:
    """Units that fit when each takes `count` different cards and card i has room for `per_card[i]` of them.

    The most u for which the cards, each counted for at most u, hold count * u shares.
    """
    if count == 1:
        return sum(per_card)
    low, high = 0, sum(per_card) // count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(units, middle) for units in per_card) >= count * middle:
            low = middle
        else:
            high = middle - 1
    return low
