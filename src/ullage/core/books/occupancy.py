"""Who is on each node, dearest first, as columns: what preemption looks at, kept up to date node by node."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.modes import mode_of
from ullage.core.books.slices import Slices, at_once, slice_begins
from ullage.core.kernel import occupants as at
from ullage.core.kernel.columns import Rows, Scores
from ullage.model.allocation import Allocation, AllocationState

_NODES_AT_ONCE = 64
"""Nodes that one slice reads."""


class Columns(NamedTuple):
    """All occupants, those of a node together: `first` says where each node's begin.

    `entries` and `charges` are as in `core/kernel/occupants.py`; `since` is when each was bound, `protected_until`
    until when it is shielded (seconds).
    """

    who: list[Allocation]
    first: Rows
    entries: Rows
    since: Scores
    protected_until: Scores
    charges: Rows


class _Node(NamedTuple):
    who: list[Allocation]
    entries: Rows
    times: Scores
    charges: Rows


class Occupancy:
    """The occupants of one fleet; nodes whose allocations changed are read again when it is asked."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._numbers: dict[tuple[str, ...], int] = {}
        self._on: list[_Node] = []

    @classmethod
    def of(cls, fleet: Fleet) -> Occupancy:
        """That of this fleet, made when it is first asked for."""
        return at_once(cls.read(fleet))

    @classmethod
    def read(cls, fleet: Fleet) -> Slices[Occupancy]:
        """Do the same as `of` in slices of some nodes."""
        found = fleet.tables.get(cls)
        if not isinstance(found, Occupancy):
            found = cls(fleet)
            yield from found._read_all()
            fleet.tables[cls] = found
        return found

    def _read_all(self) -> Slices[None]:
        for row in range(len(self._fleet.nodes)):
            if slice_begins(row, _NODES_AT_ONCE):
                yield
            self._on.append(self._read(row))
        self._fleet.dirty.clear()
        self._columns = self._joined()

    def columns(self) -> Columns:
        """Return the occupants as they are now."""
        if self._fleet.dirty:
            for row in self._fleet.dirty:
                self._on[row] = self._read(row)
            self._fleet.dirty.clear()
            self._columns = self._joined()
        return self._columns

    def number(self, *name: str) -> int:
        """Return the number that stands for a name (of a namespace, of a namespace and a workload, of a gang)."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def names(self) -> int:
        """How many names have a number."""
        return len(self._numbers)

    def _read(self, row: int) -> _Node:
        fleet = self._fleet
        uids = dict.fromkeys(chain.from_iterable(fleet.holders[card] for card in fleet.cards_on(row)))
        who = sorted(map(fleet.ledger.__getitem__, uids), key=worth)
        entries = np.empty((len(who), at.ENTRY_COLUMNS), np.int64)
        charges: list[tuple[int, int, int, int]] = []
        node = fleet.nodes[row].name
        for position, allocation in enumerate(who):
            begin, asked, claim = len(charges), allocation.requirement, allocation.claim
            charges += self._charges(allocation)
            movable = claim is not None and allocation.state is AllocationState.BOUND and allocation.node == node
            entries[position] = (
                asked.cpu_milli,
                asked.memory_bytes,
                0 if claim is None else claim.priority,
                movable,
                -1 if claim is None else self.number(claim.namespace),
                -1 if claim is None else self.number(claim.namespace, claim.workload),
                -1 if claim is None or claim.gang is None else self.number("", "", claim.gang.key),
                row,
                begin,
                len(charges),
            )
        times = [(start(each), each.claim.protected_until if each.claim else 0.0) for each in who]
        return _Node(
            who,
            entries,
            np.array(times, np.float64).reshape(-1, 2),
            np.array(charges, np.int64).reshape(-1, at.CHARGE_COLUMNS),
        )

    def _charges(self, allocation: Allocation) -> list[tuple[int, int, int, int]]:
        fleet, found = self._fleet, []
        for position, uuid in enumerate(allocation.gpus):
            card = fleet.card_of[uuid]
            charge = allocation.charges[position] if allocation.charges else None
            compute = fleet.compute_total.item(card) if charge is None else charge.compute
            vram = fleet.vram_total.item(card) if charge is None else charge.vram
            found.append((card, compute, vram, mode_of(charge)))
        row = fleet.row_of.get(allocation.node)
        held = [] if row is None else fleet.board.charges(row, allocation.placement)
        return found + [(-1 - supply, amount, 0, 0) for supply, amount in held]

    def _joined(self) -> Columns:
        nodes = self._on
        sizes = [len(node.who) for node in nodes]
        entries = np.concatenate([np.empty((0, at.ENTRY_COLUMNS), np.int64), *(node.entries for node in nodes)])
        before = np.cumsum([0, *(len(node.charges) for node in nodes)])[:-1]
        entries[:, at.FIRST_CHARGE :] += np.repeat(before, sizes)[:, None]
        times = np.concatenate([np.empty((0, 2)), *(node.times for node in nodes)])
        return Columns(
            who=list(chain.from_iterable(node.who for node in nodes)),
            first=np.cumsum([0, *sizes]),
            entries=entries,
            since=np.ascontiguousarray(times[:, 0]),
            protected_until=np.ascontiguousarray(times[:, 1]),
            charges=np.concatenate([np.empty((0, at.CHARGE_COLUMNS), np.int64), *(node.charges for node in nodes)]),
        )


def worth(allocation: Allocation) -> tuple[int, float, str]:
    """Dearest first: the highest priority, then who runs longest, then by uid; executors count as priority 0."""
    return -(allocation.claim.priority if allocation.claim else 0), start(allocation), allocation.id


def start(allocation: Allocation) -> float:
    """Return when it was bound, or what is known nearest to that."""
    for at_ in (allocation.bound_at, allocation.assumed_at):
        if at_ is not None:
            return at_
    return allocation.claim.created_at if allocation.claim else 0.0
