"""Where a request goes: one table of room and score per request shape, refreshed row by row.

A shape is what decides placement: equal requirements under one strategy share a table. When an
allocation touches a node only that row is computed again, so a decision does not rescan the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ullage.core.filters import charges_on
from ullage.core.fleet import Column, Fleet
from ullage.core.partition import fitting
from ullage.core.policy import Policy
from ullage.core.shape import Shape, Share, shape_of, units
from ullage.core.strategies import strategy_named
from ullage.core.strategies.strategy import Strategy
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement

_NO_ROOM = -1

_EVERYTHING = -1
"""A clock before all changes."""

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
        return table_of(self.fleet, requirement, self._strategy, self._cap)


def table_of(fleet: Fleet, requirement: ResourceRequirement, strategy: Strategy, cap: int | None = None) -> Table:
    """The table of a requirement under a strategy, up to date; `cap` is as in `Placer`."""
    shape = shape_of(fleet, requirement)
    key = (shape, strategy, cap)
    table = fleet.tables.get(key)
    if not isinstance(table, Table):
        if len(fleet.tables) >= _MAX_TABLES:
            fleet.tables.clear()
        table = fleet.tables[key] = Table(fleet, shape, strategy, cap)
    table.refresh()
    return table


class Table:
    """Room and rank of every node for one requirement."""

    def __init__(self, fleet: Fleet, shape: Shape, strategy: Strategy, cap: int | None = None) -> None:
        self._fleet = fleet
        self._shape = shape
        self._asked = shape.asked
        self._strategy = strategy
        self._cap = cap
        self._clock = fleet.clock
        self._shares: list[Share | None] = [share if share.allowed else None for share in shape.shares]
        self._open = self._nodes_not_excluded()
        self._bonus = self._preferred()
        self.room: Column = np.zeros(len(fleet.nodes), dtype=np.int64)
        self.ranked: Column = np.full(len(fleet.nodes), _NO_ROOM, dtype=np.int64)
        self._units = [0] * (len(fleet.cards) if shape.asked.gpu_count else 0)
        self._compute(range(len(fleet.nodes)), _EVERYTHING)

    def _nodes_not_excluded(self) -> list[bool]:
        """Per node, whether it takes work at all and this request allows it."""
        nodes = self._asked.nodes
        takes: list[bool] = self._fleet.schedulable.tolist()
        if not nodes.required:
            return takes
        return [
            may and nodes.allows(node.name, node.labels) for may, node in zip(takes, self._fleet.nodes, strict=True)
        ]

    def _preferred(self) -> list[int] | None:
        """Per node, what the preferred terms add to its score; None if there are no such terms."""
        nodes = self._asked.nodes
        return [nodes.bonus(node.name, node.labels) for node in self._fleet.nodes] if nodes.preferred else None

    def refresh(self) -> None:
        """Bring the rows up to date that were touched since the last look."""
        clock = self._fleet.clock
        if self._clock != clock:
            rows = self._fleet.touched_since(self._clock)
            if rows is None:
                self._compute(range(len(self._open)), _EVERYTHING)
            else:
                self._compute(rows, self._clock)
            self._clock = clock

    def eligible(self, row: int) -> list[int]:
        """Cards of a node that can take a share of one unit now."""
        if not self._asked.gpu_count:
            return []
        counts = self._units
        return [card for card in self._fleet.cards_on(row) if counts[card]]

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

    def _compute(self, rows: Iterable[int], since: int) -> None:
        """Bring rows up to date whose cards were looked at when the books' clock was `since`."""
        for row in rows:
            room = self._room_on(row, since) if self._open[row] else 0
            self.room[row] = room
            self.ranked[row] = self.score(row, self.eligible(row)) if room else _NO_ROOM

    def score(self, row: int, eligible: list[int]) -> int:
        """How good a node is: the strategy's score and what the preferred terms add."""
        score = self._strategy.node(self._fleet, row, self._asked, eligible)
        return score if self._bonus is None else score + self._bonus[row]

    def _room_on(self, row: int, since: int) -> int:
        """Units that fit on a node that is not excluded."""
        fleet, asked = self._fleet, self._asked
        room = self._slots_on(row)
        if asked.cpu_milli:
            room = min(room, fleet.cpu_free.item(row) // min(asked.cpu_milli, UNREACHABLE))
        if asked.memory_bytes:
            room = min(room, fleet.memory_free.item(row) // min(asked.memory_bytes, UNREACHABLE))
        if asked.gpu_count:
            cards = fleet.cards_on(row)
            self._look_at(cards, since)
            room = min(room, _units_over(self._units[cards.start : cards.stop], asked.gpu_count))
        return max(0, room)

    def _look_at(self, cards: Iterable[int], since: int) -> None:
        """How many units each card could hold one share of; 0 if it is excluded. Only cards changed since then."""
        fleet, counts, clocks, partitioned = self._fleet, self._units, self._fleet.card_clock, self._shape.partitioned
        for card in cards:
            if clocks[card] < since:
                continue
            share, modes = self._shares[fleet.kind_of[card]], fleet.card_modes.item(card)
            if share is None or modes & share.against:
                counts[card] = 0
            elif partitioned:
                counts[card] = fitting(fleet, card, self._asked)
            else:
                counts[card] = units(share, fleet.compute_free.item(card), fleet.vram_free.item(card), modes)

    def _slots_on(self, row: int) -> int:
        if self._cap is None:
            return max(0, self._fleet.slots_free.item(row))
        return max(0, self._cap - self._fleet.workers(row))


def _units_over(per_card: list[int], count: int) -> int:
    """Units that fit when each takes `count` different cards and card i has room for `per_card[i]` of them.

    The most u for which the cards, each counted for at most u, hold count * u shares: without the k
    cards that have the most room, the others must hold the shares that are left of each unit.
    """
    left = sum(per_card)
    most = left // count
    if count == 1 or not most or max(per_card) == 1:
        return most
    for k, largest in enumerate(sorted(per_card, reverse=True)[: count - 1], 1):
        left -= largest
        most = min(most, left // (count - k))
    return most
