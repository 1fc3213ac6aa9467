"""The search for the cheapest moves that free whole cards.

It compares sets of cards to free, since units take whole cards and every number of units on a node has a cost. So it
does not put holders back one by one, as the other evictions do; who they are, what protects them and what they hold
is the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import Columns, Occupancy
from ullage.core.books.slices import Slices, slice_begins
from ullage.core.books.trial import trial
from ullage.core.evicting.moves import Move, MoveContext, MovePlan, asked_again
from ullage.core.evicting.protection import Shield
from ullage.core.kernel import freeing as at
from ullage.core.kernel import occupants
from ullage.core.kernel.columns import CAP, COMPUTE_FREE, COMPUTE_TOTAL, VRAM_FREE, VRAM_TOTAL, Rows
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Choice
from ullage.core.placing.selection import choose, select
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.request import ResourceRequirement

_NODES_AT_ONCE, _MOVES_AT_ONCE, _HOLDERS_AT_ONCE, _TABLES_AT_ONCE = 128, 16, 500, 4
"""What one slice does: nodes whose ways to free cards are compared, moves placed, holders entered, tables updated."""

_ONE_MORE = 1 << 40
"""The cost of one more move: larger than that of all cards together, so that the number of moves counts first."""


class MoveHolders:
    """Everybody who holds cards, by node: rows for the kernel, and who they are."""

    def __init__(self, look: MoveContext, there: Columns) -> None:
        self.there = there
        self.rows: Rows = np.zeros((len(there.who), at.HOLDER_COLUMNS), dtype=np.int64)
        self.rows[:, at.MASK] = _masks(look.fleet, there)
        self.rows[:, at.ITS_CPU] = there.entries[:, occupants.CPU]
        self.rows[:, at.ITS_MEMORY] = there.entries[:, occupants.MEMORY]
        self.stays: Rows = np.zeros(len(look.fleet.nodes), dtype=np.int64)
        self._look = look
        self._may = np.zeros(len(there.who), dtype=np.bool_)
        self._requirements: dict[ResourceRequirement, int] = {}
        self._asks: Rows = np.zeros(len(there.who), dtype=np.int64)
        """The requirement of each, by its number."""

    @classmethod
    def read(cls, look: MoveContext, movable: Iterable[Allocation]) -> Slices[MoveHolders]:
        """Return, in slices, the holders on these books and which of them may be moved."""
        there = (yield from Occupancy.read(look.fleet)).columns()
        holders, may = cls(look, there), {allocation.id for allocation in movable}
        known = holders._requirements
        for number, allocation in enumerate(there.who):
            if slice_begins(number, _HOLDERS_AT_ONCE):
                yield
            holders._may[number] = allocation.id in may
            holders._asks[number] = known.setdefault(allocation.requirement, len(known))
        costs = np.array([look.fleet.resources(asked).gpu_milli for asked in known], dtype=np.int64)
        holders.rows[:, at.COST] = _ONE_MORE + costs[holders._asks]
        return holders

    def _roomy(self) -> Slices[npt.NDArray[np.bool_]]:
        """Return for each holder whether there is room for it anywhere."""
        roomy = np.zeros(len(self._requirements), dtype=np.bool_)
        for number, requirement in enumerate(self._requirements):
            if slice_begins(number, _TABLES_AT_ONCE):
                yield
            roomy[number] = self._look.table(Request("any", requirement)).room.any()
        found: npt.NDArray[np.bool_] = roomy[self._asks]
        return found

    def without_room(self) -> Slices[dict[Shield, int]]:
        """Return how many are movable but have no room anywhere."""
        nowhere = self._may & ~(yield from self._roomy())
        number = len({self.there.who[holder].id for holder in nowhere.nonzero()[0].tolist()})
        return {Shield.NOWHERE: number} if number else {}

    def allow(self, highest: int) -> Slices[None]:
        """Only those up to this priority may be moved, who have room somewhere."""
        low = self.there.entries[:, occupants.PRIORITY] <= highest
        self.rows[:, at.MOVABLE] = self._may & low & (yield from self._roomy())

    def fix(self, plan: MovePlan) -> None:
        """Fix what was decided: moved allocations move no more, and the chosen cards stay as they are."""
        moved = {move.allocation.id for move in plan.moves}
        self.rows[[allocation.id in moved for allocation in self.there.who], at.MASK] = 0
        fleet = self._look.fleet
        for choice in (*plan.units, *(move.to for move in plan.moves)):
            row = fleet.row_of[choice.node]
            self.stays[row] |= _mask(fleet, row, choice.gpus)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Afterwards nothing is fixed that was not before."""
        before = self.rows.copy(), self.stays.copy()
        try:
            yield
        finally:
            self.rows, self.stays = before

    def of(self, row: int, mask: int) -> list[Allocation]:
        """Return the holders of these cards of a node."""
        here = range(*self.there.first[row : row + 2].tolist())
        return [self.there.who[holder] for holder in here if self.rows.item(holder, at.MASK) & mask]


def _masks(fleet: Fleet, there: Columns) -> Rows:
    """Return the cards that each occupant holds on its node, as bits."""
    rows = np.repeat(np.arange(len(fleet.nodes)), np.diff(there.first))
    first, after = there.entries[:, occupants.FIRST_CHARGE], there.entries[:, occupants.AFTER_CHARGE]
    who, cards = np.repeat(np.arange(len(rows)), after - first), there.charges[:, occupants.CARD]
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
        card = fleet.card_of[uuid]
        if card in cards:
            mask |= 1 << min(card - cards.start, at.BITS)
    return mask


class FreedCards(NamedTuple):
    """A decision for one node: the number of units, and the cards that are freed for them, as bits.

    As a ban it says that these cards are not freed for so many units.
    """

    row: int
    units: int
    mask: int


Bans = frozenset[FreedCards]


class MoveSearch:
    """Plans in the order of their costs, in which nobody above a priority moves."""

    def __init__(self, look: MoveContext, holders: MoveHolders) -> None:
        self._look, self._fleet, self._holders = look, look.fleet, holders
        asked = look.wanted.requirement
        self._shape = shape_of(look.fleet, asked).rows.copy()
        self._shape[0, CAP] = look.rules.cap
        self._opened = look.table(look.wanted).opened
        self._empty = look.fleet.emptied()
        largest = int(np.diff(look.fleet.gpu_start).max(initial=0))
        most = min(look.units, largest // asked.gpu_count)
        self._costs: Rows = np.zeros((len(look.fleet.nodes), most + 1), dtype=np.int64)
        self._picks = np.zeros_like(self._costs)

    @classmethod
    def over(cls, look: MoveContext, holders: MoveHolders, highest: int) -> Slices[MoveSearch]:
        """Return, in slices, the search in which nobody above this priority moves."""
        yield from holders.allow(highest)
        search = cls(look, holders)
        for first in range(0, len(look.fleet.nodes), _NODES_AT_ONCE):
            yield
            search._free(np.arange(first, min(first + _NODES_AT_ONCE, len(look.fleet.nodes))), ())
        return search

    def most(self) -> int:
        """Return an upper bound of the units that fit: all movable allocations gone, and all free room together."""
        able = self._costs < at.NEVER
        return self._by_sums(int((able * np.arange(self._costs.shape[1])).max(axis=1, initial=0).sum()))

    def _by_sums(self, units: int) -> int:
        """Return an upper bound of the units that fit by the free room of all cards together.

        Moves do not change this sum if all cards are equal and none holds more than its capacity. Otherwise the bound
        is the number of units.
        """
        fleet, count = self._fleet, self._look.wanted.requirement.gpu_count
        if self._look.rules.oversubscription or len(fleet.kinds) != 1:
            return units
        for free, total in ((COMPUTE_FREE, COMPUTE_TOTAL), (VRAM_FREE, VRAM_TOTAL)):
            of_one = fleet.card_rows.item(0, total)
            if of_one > 0:
                units = min(units, int(fleet.card_rows[:, free].clip(0).sum()) // of_one // count)
        return units

    def cheapest(self) -> Slices[MovePlan | None]:
        """Return the cheapest plan in which every allocation finds a place.

        After a failed plan, its decision for each node is excluded in turn: every other plan differs from it in at
        least one node.
        """
        seen: set[Bans] = {frozenset()}
        waiting: list[tuple[int, int, Bans, list[FreedCards]]] = []
        self._push(waiting, frozenset(), len(seen))
        yield
        for _ in range(self._look.tries):
            if not waiting:
                return None
            _, _, bans, chosen = heappop(waiting)
            plan = yield from self._placed(chosen)
            if plan is not None:
                return plan
            for ban in chosen:
                other = bans | {ban}
                if other not in seen:
                    seen.add(other)
                    self._push(waiting, other, len(seen))
                    yield
        return None

    def _push(self, waiting: list[tuple[int, int, Bans, list[FreedCards]]], bans: Bans, age: int) -> None:
        rows = np.array(sorted({ban.row for ban in bans}), dtype=np.int64)
        before = self._costs[rows], self._picks[rows]
        self._free(rows, sorted(bans))
        spread = at.share_out(self._costs, self._look.units)
        if len(spread):
            chosen = [
                FreedCards(row, int(spread[row]), self._picks.item(row, spread[row]))
                for row in spread.nonzero()[0].tolist()
            ]
            cost = sum(self._costs.item(freed.row, freed.units) for freed in chosen)
            heappush(waiting, (cost, age, bans, chosen))
        self._costs[rows], self._picks[rows] = before

    def _free(self, rows: Rows, bans: Sequence[FreedCards]) -> None:
        fleet, there = self._fleet, self._holders.there
        books = fleet.node_rows, fleet.card_rows, self._empty.card_rows, self._opened, self._shape
        holders = there.first, self._holders.rows, self._holders.stays
        ways = rows, np.array(bans, dtype=np.int64).reshape(-1, 3)
        at.free_on_nodes(
            *books, *holders, *ways, (there.entries, there.charges, fleet.board.store), self._costs, self._picks
        )

    # --- where everybody goes ---

    def _placed(self, chosen: Sequence[FreedCards]) -> Slices[MovePlan | None]:
        """Return the plan that frees these cards; None if an allocation finds no place."""
        fleet = self._fleet
        leaving = [allocation for row, _, mask in chosen for allocation in self._holders.of(row, mask)]
        if not self._idle_suffice(leaving):
            return None
        with trial(fleet):
            yield from self._release(leaving)
            units: list[Choice] = []
            for row, count, mask in chosen:
                yield
                units += self._take(row, count, mask)
            moves = (yield from self._moves(leaving)) if len(units) == self._look.units else []
        complete = len(units) == self._look.units and len(moves) == len(leaving)
        return MovePlan(tuple(units), tuple(moves)) if complete else None

    def _idle_suffice(self, leaving: Sequence[Allocation]) -> bool:
        """Return whether enough cards can be idle for the units and for those who leave, counting whole cards."""
        asked, look = [each.requirement for each in leaving], self._look
        needed = look.units * look.wanted.requirement.gpu_count + sum(each.gpu_count for each in asked if each.whole)
        freed = {uuid for allocation in leaving for uuid in allocation.gpus}
        return needed <= int(self._fleet.gpu_free.sum()) + len(freed)

    def _release(self, leaving: Sequence[Allocation]) -> Slices[None]:
        for number, allocation in enumerate(leaving, 1):
            self._fleet.release(allocation.id)
            if slice_begins(number, _MOVES_AT_ONCE):
                yield

    def _take(self, row: int, count: int, mask: int) -> Iterator[Choice]:
        """Units on a node whose cards were freed: on these first, then on idle ones."""
        fleet, look, cards = self._fleet, self._look, self._fleet.cards_on(row)
        node, asked = fleet.nodes[row].name, look.wanted.requirement
        for number in range(count):
            able = find(fleet, look.rules, look.wanted, cards).by_node.get(node, ())
            freed_first = sorted(able, key=lambda uuid: not mask >> fleet.card_of[uuid] - cards.start & 1)
            first = len(able) if fleet.board.decides(asked) else asked.gpu_count  # zones say which go together
            choice = select(fleet, look.rules, look.wanted, {node: freed_first[:first]})
            if not isinstance(choice, Choice):
                return  # what it may use is not a matter of cards alone
            look.charge_unit(choice, f"unit {number} on {node}")
            yield choice

    def _moves(self, leaving: Sequence[Allocation]) -> Slices[list[Move]]:
        """Places for those who move, as far as there are any."""
        fleet, rules = self._fleet, self._look.rules
        found: list[Move] = []
        for allocation in self._look.in_turn(leaving):
            if slice_begins(len(found), _MOVES_AT_ONCE):
                yield
            request = asked_again(allocation)
            choice = None if self._look.table(request).best() is None else choose(fleet, rules, request)
            if choice is None:
                break
            move = Move(allocation, choice)
            self._look.charge_moved(move)
            found.append(move)
        return found


def find_plan(look: MoveContext, holders: MoveHolders, highest: int) -> Slices[MovePlan]:
    """Return the plan for all units, or for as many as possible one after the other; None if there are too many."""
    search = yield from MoveSearch.over(look, holders, highest)
    if search.most() < look.units:
        return MovePlan((), ())
    found = yield from search.cheapest()
    return found or (yield from _one_by_one(look, holders, highest))


def _one_by_one(look: MoveContext, holders: MoveHolders, highest: int) -> Slices[MovePlan]:
    """Return a plan of one unit after the other, each at least cost after those before it."""
    units: list[Choice] = []
    moves: list[Move] = []
    single = replace(look, units=1)
    with trial(look.fleet), holders.trial():
        while len(units) < look.units:
            plan = yield from (yield from MoveSearch.over(single, holders, highest)).cheapest()
            if plan is None:
                break
            _enter(look, plan, len(units))
            holders.fix(plan)
            units += plan.units
            moves += plan.moves
    return MovePlan(tuple(units), tuple(moves), least=False)


def _enter(look: MoveContext, plan: MovePlan, number: int) -> None:
    """Carry out a plan of one unit on the books."""
    for move in plan.moves:
        look.fleet.release(move.allocation.id)
    for choice in plan.units:
        look.charge_unit(choice, f"unit {number}")
    for move in plan.moves:
        look.charge_moved(move)
