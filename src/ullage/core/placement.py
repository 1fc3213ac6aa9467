"""Where a request goes: one table of room and score per request shape, refreshed row by row.

A shape is what decides placement: equal requirements share a table. When an allocation touches a
node only that row is computed again, so a decision does not rescan the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ullage.core.fleet import Column, Fleet
from ullage.core.policy import Policy
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement

_FULL = 1 << 20
"""A whole node's worth of one term of the score; terms are integers so that every CPU agrees."""

_NO_ROOM = -1

_MAX_TABLES = 1024
"""Request shapes remembered at a time; ones beyond cost their table again."""

UNREACHABLE = 2**62
"""Larger than any node: requests beyond the range of a column are cut to it."""

Amounts = tuple[int, int, int]
"""cpu in thousandths, memory in bytes, whole cards."""


class Placer:
    """Places requests on one fleet, charging it as it goes."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self.fleet = fleet
        self._policy = policy

    def room(self, requirement: ResourceRequirement) -> Column:
        """Per node, how many executors of this requirement fit now."""
        return self._table(requirement).room

    def place(
        self, allocation_id: str, requirement: ResourceRequirement, also: Placer | None = None
    ) -> Allocation | None:
        """Pick a node and cards, charge them here and in `also`, and return the allocation.

        With `also`, a place counts only if it is free in both books: now, and in the outlook where
        capacity is held for somebody else. None means nothing fits.
        """
        ranked = self._table(requirement).ranked
        if also is not None:
            ranked = np.where(also.room(requirement) > 0, ranked, _NO_ROOM)
        while len(ranked):
            row = int(ranked.argmax())
            if ranked[row] == _NO_ROOM:
                break
            cards = self._pick_cards(row, requirement.gpu_count, also)
            if cards is not None:
                allocation = Allocation(
                    allocation_id, self.fleet.nodes[row].name, requirement, self.fleet.uuids(row, cards)
                )
                self.fleet.charge(allocation)
                if also is not None:
                    also.fleet.charge(allocation)
                return allocation
            ranked = ranked.copy()
            ranked[row] = _NO_ROOM
        return None

    def _pick_cards(self, row: int, count: int, also: Placer | None) -> list[int] | None:
        """Cards of one zone if a zone has enough, the fullest such zone first; else lowest positions."""
        if not count:
            return []
        free = self.fleet.free_cards(row)
        if also is not None:
            held_for_others = set(free).difference(also.fleet.free_cards(row))
            free = [card for card in free if card not in held_for_others]
        if len(free) < count:
            return None
        start = int(self.fleet.gpu_start[row])
        zones: dict[int, list[int]] = {}
        for card in free:
            zone = self.fleet.nodes[row].gpus[card - start].numa_zone
            zones.setdefault(-1 if zone is None else zone, []).append(card)
        whole = [cards for _, cards in sorted(zones.items()) if len(cards) >= count]
        return min(whole, key=len)[:count] if whole else free[:count]

    def _table(self, requirement: ResourceRequirement) -> _Table:
        key = (requirement, self._policy.spread)
        table = self.fleet.tables.get(key)
        if not isinstance(table, _Table):
            if len(self.fleet.tables) >= _MAX_TABLES:
                self.fleet.tables.clear()
            table = self.fleet.tables[key] = _Table(self.fleet, requirement, self._policy.spread)
        table.refresh()
        return table


class _Table:
    """Room and rank of every node for one requirement."""

    def __init__(self, fleet: Fleet, requirement: ResourceRequirement, spread: bool) -> None:
        self._fleet = fleet
        self._spread = spread
        self._asked = (
            min(requirement.cpu_milli, UNREACHABLE),
            min(requirement.memory_bytes, UNREACHABLE),
            requirement.gpu_count,
        )
        self._clock = fleet.clock
        self.room: Column = np.zeros(len(fleet.nodes), dtype=np.int64)
        self.ranked: Column = np.full(len(fleet.nodes), _NO_ROOM, dtype=np.int64)
        self._compute(range(len(fleet.nodes)))

    def refresh(self) -> None:
        """Bring the rows up to date that were touched since the last look."""
        if self._clock != self._fleet.clock:
            rows = self._fleet.touched_since(self._clock)
            self._compute(range(len(self.room)) if rows is None else rows)
            self._clock = self._fleet.clock

    def _compute(self, rows: Iterable[int]) -> None:
        fleet = self._fleet
        for row in rows:
            free = (int(fleet.cpu_free[row]), int(fleet.memory_free[row]), int(fleet.gpu_free[row]))
            total = (int(fleet.cpu_total[row]), int(fleet.memory_total[row]), int(fleet.gpu_total[row]))
            slots, most = int(fleet.slots_free[row]), int(fleet.slots_total[row])
            room = room_on(free, self._asked, slots) if fleet.schedulable[row] else 0
            self.room[row] = room
            self.ranked[row] = rank(free, total, self._asked, slots < most, self._spread) if room else _NO_ROOM


def room_on(free: Amounts, asked: Amounts, slots: int) -> int:
    """How many executors that ask for `asked` fit into `free` cpu, memory, cards and executor slots."""
    room = max(slots, 0)
    for have, need in zip(free, asked, strict=True):
        if need:
            room = min(room, max(have, 0) // need)
    return room


def rank(free: Amounts, total: Amounts, asked: Amounts, used: bool, spread: bool) -> int:
    """How good a node with room is, higher is better.

    Nodes without cards come first for work without cards, then nodes in use before empty ones, then
    the tightest fit; with `spread` empty nodes and the loosest fit.
    """
    left = sum((have - need) * _FULL // whole for have, whole, need in zip(free, total, asked, strict=True) if need)
    tight = left if spread else 3 * _FULL - left
    spares_cards = not asked[2] and not total[2]
    return tight + 4 * _FULL * (used != spread) + 8 * _FULL * spares_cards
