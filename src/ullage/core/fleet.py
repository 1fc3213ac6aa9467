"""The books: what every node and card has left, and the journal that can take any step back.

Inventory is static; allocations are a ledger keyed by id; free capacity is derived and kept in
columns, one row per node (sorted by name) and one flat row per card with a start offset per node.

Law: the columns always equal inventory minus ledger. A column may be negative after capacity
shrank under what is held; such a node has no room and nobody is evicted for it.

All trial work goes through `checkpoint`, then `rollback` (columns and ledger equal the old ones
exactly) or `keep` (the step becomes part of the enclosing trial). Nobody writes an undo by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ullage.model.allocation import Allocation
from ullage.model.error import Conflict, NotFound
from ullage.model.node import Node
from ullage.model.resources import MILLI, Resources

Column = npt.NDArray[np.int64]

_FREE = ("cpu_free", "memory_free", "slots_free", "gpu_free")


class Fleet:
    """Columns over nodes and cards, derived from `nodes` and the allocations charged so far."""

    def __init__(self, nodes: Iterable[Node], allocations: Iterable[Allocation] = ()) -> None:
        self.nodes: tuple[Node, ...] = tuple(sorted(nodes, key=lambda node: node.name))
        self.row_of = {node.name: row for row, node in enumerate(self.nodes)}
        self.schedulable = np.array([node.schedulable for node in self.nodes], dtype=np.bool_)
        self._derive_columns()
        self.ledger: dict[str, Allocation] = {}
        self.tables: dict[object, object] = {}
        """Derived tables that follow these books (see `core/placement.py`)."""
        self._touched: list[int] = []
        self._forgotten = 0
        self._empty: Fleet | None = None
        self._journal: list[tuple[int, tuple[int, int, int, int], tuple[tuple[int, int], ...], str, Allocation | None]]
        self._journal = []
        self._open = 0
        for allocation in allocations:
            self.charge(allocation)

    def _derive_columns(self) -> None:
        nodes = self.nodes
        self.cpu_total = np.array([node.allocatable.cpu_milli for node in nodes], dtype=np.int64)
        self.memory_total = np.array([node.allocatable.memory_bytes for node in nodes], dtype=np.int64)
        self.gpu_total = np.array([node.allocatable.gpu_milli // MILLI for node in nodes], dtype=np.int64)
        self.slots_total = np.array([node.max_executors for node in nodes], dtype=np.int64)
        self.cpu_free = self.cpu_total.copy()
        self.memory_free = self.memory_total.copy()
        self.gpu_free = self.gpu_total.copy()
        self.slots_free = self.slots_total.copy()
        self.gpu_start = np.cumsum([0, *(len(node.gpus) for node in nodes)])
        cards = [gpu for node in nodes for gpu in node.gpus]
        self.card_of = {gpu.uuid: card for card, gpu in enumerate(cards)}
        self.card_healthy = np.array([gpu.healthy for gpu in cards], dtype=np.bool_)
        self.card_taken = np.zeros(len(cards), dtype=np.int64)

    # --- queries ---

    @property
    def total(self) -> Resources:
        """Sum of allocatable over the nodes that may take work."""
        open_rows = self.schedulable
        return Resources(
            int(self.cpu_total[open_rows].sum()),
            int(self.memory_total[open_rows].sum()),
            int(self.gpu_total[open_rows].sum()) * MILLI,
        )

    def free_cards(self, row: int) -> list[int]:
        """Healthy cards of a node that nobody holds, by position."""
        start, end = int(self.gpu_start[row]), int(self.gpu_start[row + 1])
        return [card for card in range(start, end) if self.card_healthy[card] and not self.card_taken[card]]

    def usable_cards(self, row: int) -> list[int]:
        """Healthy cards of a node, held or not."""
        start, end = int(self.gpu_start[row]), int(self.gpu_start[row + 1])
        return [card for card in range(start, end) if self.card_healthy[card]]

    def uuids(self, row: int, cards: Sequence[int]) -> tuple[str, ...]:
        """Identities of cards given by their flat position."""
        start = int(self.gpu_start[row])
        return tuple(self.nodes[row].gpus[card - start].uuid for card in cards)

    # --- changes ---

    def charge(self, allocation: Allocation, *, force: bool = False) -> None:
        """Enter an allocation. `force` lets columns go negative: a claim on capacity that will be free.

        Raises:
            Conflict: the id is in the ledger, or a card is held by another and `force` is not set.
            NotFound: a card is unknown. An unknown node is kept in the ledger and charges nothing.

        """
        if allocation.id in self.ledger:
            raise Conflict(f"allocation {allocation.id} is already in the ledger", code="already-allocated")
        row = self.row_of.get(allocation.node)
        if row is not None:
            cards = self._cards_of(allocation)
            if not force and any(self.card_taken[card] for card in cards):
                raise Conflict(f"a card of {allocation.id} is held by another", code="card-held")
            self._save(row, cards, allocation.id)
            self._add(row, cards, allocation, +1)
        else:
            self._save(-1, (), allocation.id)
        self.ledger[allocation.id] = allocation

    def release(self, allocation_id: str) -> Allocation:
        """Take an allocation out of the books and return it.

        Raises:
            NotFound: the ledger has no such id.

        """
        allocation = self.ledger.get(allocation_id)
        if allocation is None:
            raise NotFound(f"allocation {allocation_id} is not in the ledger")
        row = self.row_of.get(allocation.node)
        cards = () if row is None else self._cards_of(allocation)
        self._save(-1 if row is None else row, cards, allocation_id)
        if row is not None:
            self._add(row, cards, allocation, -1)
        del self.ledger[allocation_id]
        return allocation

    def _cards_of(self, allocation: Allocation) -> tuple[int, ...]:
        try:
            return tuple(self.card_of[uuid] for uuid in allocation.gpus)
        except KeyError as missing:
            raise NotFound(f"card {missing} of allocation {allocation.id} is unknown", code="unknown-gpu") from None

    def _add(self, row: int, cards: tuple[int, ...], allocation: Allocation, sign: int) -> None:
        asked = allocation.requirement
        self.cpu_free[row] -= sign * asked.cpu_milli
        self.memory_free[row] -= sign * asked.memory_bytes
        self.slots_free[row] -= sign
        for card in cards:
            before = int(self.card_taken[card])
            after = self.card_taken[card] = before + sign * MILLI
            if self.card_healthy[card]:
                self.gpu_free[row] += (after == 0) - (before == 0)
        self._touch(row)

    def _touch(self, row: int) -> None:
        if len(self._touched) > 4 * len(self.nodes) + 1024:
            self._forgotten += len(self._touched)
            self._touched.clear()
        self._touched.append(row)

    @property
    def clock(self) -> int:
        """Grows by one with every changed row."""
        return self._forgotten + len(self._touched)

    def touched_since(self, clock: int) -> list[int] | None:
        """Rows changed since `clock`, ascending; None if that is too long ago to say."""
        if clock < self._forgotten:
            return None
        return sorted(set(self._touched[clock - self._forgotten :]))

    # --- journal ---

    def checkpoint(self) -> int:
        """Start a trial; give the mark to `rollback` or `keep`."""
        self._open += 1
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """End a trial: columns and ledger are exactly as they were at the checkpoint."""
        while len(self._journal) > mark:
            row, free, cards, key, allocation = self._journal.pop()
            if row >= 0:
                for name, value in zip(_FREE, free, strict=True):
                    getattr(self, name)[row] = value
                for card, taken in cards:
                    self.card_taken[card] = taken
                self._touch(row)
            if allocation is None:
                del self.ledger[key]
            else:
                self.ledger[key] = allocation
        self._open -= 1

    def keep(self, mark: int) -> None:
        """End a trial and let its changes stand, within the enclosing trial if there is one."""
        self._open -= 1
        if not self._open:
            del self._journal[mark:]

    def _save(self, row: int, cards: tuple[int, ...], key: str) -> None:
        if self._open:
            free = (0, 0, 0, 0)
            if row >= 0:
                free = (
                    int(self.cpu_free[row]),
                    int(self.memory_free[row]),
                    int(self.slots_free[row]),
                    int(self.gpu_free[row]),
                )
            taken = tuple((card, int(self.card_taken[card])) for card in cards)
            self._journal.append((row, free, taken, key, self.ledger.get(key)))

    # --- copies ---

    def copy(self) -> Fleet:
        """A second set of books with the same content, for looking ahead."""
        twin = object.__new__(Fleet)
        twin.__dict__.update(self.__dict__)
        for name in (*_FREE, "card_taken"):
            setattr(twin, name, getattr(self, name).copy())
        twin.ledger = dict(self.ledger)
        twin.tables, twin._touched, twin._forgotten, twin._journal, twin._open = {}, [], 0, [], 0
        return twin

    def emptied(self) -> Fleet:
        """The same inventory with nothing allocated; one for all callers, who work on it in a trial."""
        if self._empty is None:
            self._empty = Fleet(self.nodes)
        return self._empty
