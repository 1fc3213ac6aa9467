"""The search for the cheapest moves that free whole cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from ullage.core.books.slices import Slices
from ullage.core.books.trial import trial
from ullage.core.evicting.holders import MoveHolders
from ullage.core.evicting.moving import Move, MoveContext, MovePlan, asked_again, in_turn, moved, table_for
from ullage.core.kernel import freeing as at
from ullage.core.kernel.columns import CAP, COMPUTE_FREE, COMPUTE_TOTAL, VRAM_FREE, VRAM_TOTAL, Rows
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Choice
from ullage.core.placing.selection import choose, placement_of, select
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Allocation

_NODES_AT_ONCE = 128
"""Nodes whose ways to free cards one slice compares."""

_MOVES_AT_ONCE = 16
"""Moves that one slice places."""

Ban = tuple[int, int, int]
"""A node, a number of units, and the cards that are not to be freed for them, as bits."""


class MoveSearch:
    """Plans in the order of their costs, in which nobody above a priority moves."""

    def __init__(self, look: MoveContext, holders: MoveHolders) -> None:
        self._look, self._fleet, self._holders = look, look.fleet, holders
        asked = look.wanted.requirement
        self._shape = shape_of(look.fleet, asked).rows.copy()
        self._shape[0, CAP] = look.rules.cap
        self._opened = table_for(look, look.wanted).opened
        self._empty = look.fleet.emptied()
        largest = int(np.diff(look.fleet.gpu_start).max(initial=0))
        most = max(1, min(look.units, largest // asked.gpu_count))
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
        seen: set[frozenset[Ban]] = {frozenset()}
        waiting: list[tuple[int, int, frozenset[Ban], list[Ban]]] = []
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

    def _push(self, waiting: list[tuple[int, int, frozenset[Ban], list[Ban]]], bans: frozenset[Ban], age: int) -> None:
        rows = np.array(sorted({row for row, _, _ in bans}), dtype=np.int64)
        before = self._costs[rows], self._picks[rows]
        self._free(rows, sorted(bans))
        spread = at.share_out(self._costs, self._look.units)
        if len(spread):
            chosen = [
                (row, int(spread[row]), self._picks.item(row, spread[row])) for row in spread.nonzero()[0].tolist()
            ]
            cost = sum(self._costs.item(row, units) for row, units, _ in chosen)
            heappush(waiting, (cost, age, bans, chosen))
        self._costs[rows], self._picks[rows] = before

    def _free(self, rows: Rows, bans: Sequence[Ban]) -> None:
        fleet, holders = self._fleet, self._holders
        books = fleet.node_rows, fleet.card_rows, self._empty.card_rows, self._opened, self._shape
        ways = np.array(bans, dtype=np.int64).reshape(-1, 3)
        zones = holders.entries, holders.charges, fleet.board.store
        at.free_on_nodes(
            *books, holders.starts, holders.rows, holders.stays, rows, ways, zones, self._costs, self._picks
        )

    # --- where everybody goes ---

    def _placed(self, chosen: Sequence[Ban]) -> Slices[MovePlan | None]:
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
            if number % _MOVES_AT_ONCE == 0:
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
            uid = f"unit {number} on {node}"  # no request has such a name
            fleet.charge(Allocation(uid, node, asked, choice.gpus, charges=choice.charges, placement=choice.placement))
            yield choice

    def _moves(self, leaving: Sequence[Allocation]) -> Slices[list[Move]]:
        """Places for those who move, as far as there are any."""
        fleet, rules = self._fleet, self._look.rules
        found: list[Move] = []
        for allocation in in_turn(self._look, leaving):
            if len(found) % _MOVES_AT_ONCE == 0:
                yield
            request = asked_again(allocation)
            if table_for(self._look, request).best() is None:
                break
            choice = choose(fleet, rules, request)
            if not isinstance(choice, Choice):
                break
            fleet.charge(moved(allocation, choice), force=True)
            found.append(Move(allocation, choice))
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
            holders.settle(plan)
            units += plan.units
            moves += plan.moves
    return MovePlan(tuple(units), tuple(moves), least=False)


def _enter(look: MoveContext, plan: MovePlan, number: int) -> None:
    fleet = look.fleet
    for move in plan.moves:
        fleet.release(move.allocation.id)
    for choice in plan.units:
        asked, gpus = look.wanted.requirement, choice.gpus
        placement = placement_of(fleet, asked, choice)
        fleet.charge(
            Allocation(f"unit {number}", choice.node, asked, gpus, charges=choice.charges, placement=placement)
        )
    for move in plan.moves:
        fleet.charge(moved(move.allocation, move.to), force=True)
