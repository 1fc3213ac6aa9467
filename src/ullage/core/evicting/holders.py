"""Everybody who holds cards, as rows for the search of moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import Columns, Occupancy
from ullage.core.books.slices import Slices
from ullage.core.evicting.movable import Stays, priority_of
from ullage.core.evicting.moving import MoveContext, MovePlan, table_for
from ullage.core.kernel import freeing as at
from ullage.core.kernel import victims
from ullage.core.kernel.columns import Rows
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.request import ResourceRequirement

ONE_MORE = 1 << 40
"""The cost of one more move: larger than that of all cards together, so that the number of moves counts first."""

_AT_ONCE = 500
"""Holders that one slice enters."""

_TABLES_AT_ONCE = 4
"""Tables that one slice brings up to date."""


class MoveHolders:
    """Everybody who holds cards, by node: rows for the kernel, and who they are."""

    def __init__(self, look: MoveContext, there: Columns) -> None:
        self.allocations, self.starts = there.who, there.first
        self.entries, self.charges = there.entries, there.charges
        self.rows: Rows = np.zeros((len(there.who), at.HOLDER_COLUMNS), dtype=np.int64)
        self.rows[:, at.MASK] = _masks(look.fleet, there)
        self.rows[:, at.ITS_CPU] = there.entries[:, victims.CPU]
        self.rows[:, at.ITS_MEMORY] = there.entries[:, victims.MEMORY]
        self.stays: Rows = np.zeros(len(look.fleet.nodes), dtype=np.int64)
        self._look = look
        self._may = np.zeros(len(there.who), dtype=np.bool_)
        self._priorities: Rows = np.zeros(len(there.who), dtype=np.int64)
        self._number: dict[ResourceRequirement, int] = {}
        self._asks: Rows = np.zeros(len(there.who), dtype=np.int64)
        """The requirement of each, by its number."""

    @classmethod
    def read(cls, look: MoveContext, movable: Sequence[Allocation]) -> Slices[MoveHolders]:
        """Return, in slices, the holders on these books and which of them may be moved."""
        there = (yield from Occupancy.read(look.fleet)).columns()
        holders, may = cls(look, there), {allocation.id for allocation in movable}
        for first in range(0, len(there.who), _AT_ONCE):
            yield
            holders._enter(slice(first, first + _AT_ONCE), may)
        return holders

    def _enter(self, some: slice, may: Collection[str]) -> None:
        milli, number, there = self._look.milli, self._number, self.allocations[some]
        self.rows[some, at.COST] = [ONE_MORE + milli(allocation) for allocation in there]
        self._may[some] = [allocation.id in may for allocation in there]
        self._priorities[some] = list(map(priority_of, there))
        self._asks[some] = [number.setdefault(allocation.requirement, len(number)) for allocation in there]

    def _roomy(self) -> Slices[npt.NDArray[np.bool_]]:
        """Return for each requirement whether there is room for it anywhere."""
        roomy = np.zeros(len(self._number), dtype=np.bool_)
        for number, requirement in enumerate(self._number):
            if number % _TABLES_AT_ONCE == 0:
                yield
            roomy[number] = table_for(self._look, Request("any", requirement)).room.any()
        found: npt.NDArray[np.bool_] = roomy[self._asks]
        return found

    def without_room(self) -> Slices[dict[Stays, int]]:
        """Return how many are movable but have no room anywhere."""
        nowhere = self._may & ~(yield from self._roomy())
        number = len({self.allocations[k].id for k in nowhere.nonzero()[0].tolist()})
        return {Stays.NOWHERE: number} if number else {}

    def allow(self, highest: int) -> Slices[None]:
        """Only those up to this priority may be moved, who have room somewhere."""
        self.rows[:, at.MOVABLE] = self._may & (self._priorities <= highest) & (yield from self._roomy())

    def settle(self, plan: MovePlan) -> None:
        """Fix what was decided: moved allocations move no more, and the chosen cards stay as they are."""
        moved = {move.allocation.id for move in plan.moves}
        self.rows[[allocation.id in moved for allocation in self.allocations], at.MASK] = 0
        fleet = self._look.fleet
        for choice in (*plan.units, *(move.to for move in plan.moves)):
            row = fleet.row_of[choice.node]
            self.stays[row] |= _mask(fleet, row, choice.gpus)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Afterwards nothing is settled that was not before."""
        before = self.rows.copy(), self.stays.copy()
        try:
            yield
        finally:
            self.rows, self.stays = before

    def of(self, row: int, mask: int) -> list[Allocation]:
        """Return the holders of these cards of a node."""
        here = range(self.starts.item(row), self.starts.item(row + 1))
        return [self.allocations[holder] for holder in here if self.rows.item(holder, at.MASK) & mask]


def _masks(fleet: Fleet, there: Columns) -> Rows:
    """Return the cards that each occupant holds on its node, as bits."""
    rows = np.repeat(np.arange(len(fleet.nodes)), np.diff(there.first))
    first, after = there.entries[:, victims.FIRST_CHARGE], there.entries[:, victims.AFTER_CHARGE]
    who, cards = np.repeat(np.arange(len(rows)), after - first), there.charges[:, victims.CARD]
    who, cards = who[cards >= 0], cards[cards >= 0]
    here = fleet.card_row[cards] == rows[who]
    bits = np.left_shift(1, np.minimum(cards - fleet.gpu_start[rows[who]], at.BITS))
    masks: Rows = np.zeros(len(rows), dtype=np.int64)
    np.bitwise_or.at(masks, who[here], bits[here])
    return masks


def _mask(fleet: Fleet, row: int, gpus: Iterable[str]) -> int:
    """Return those of the cards that are on the node, as bits. Cards beyond the range of the kernel share one bit."""
    cards, mask = fleet.cards_on(row), 0
    for uuid in gpus:
        card = fleet.card_of.get(uuid, -1)
        if card in cards:
            mask |= 1 << min(card - cards.start, at.BITS)
    return mask
