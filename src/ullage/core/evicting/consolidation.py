"""Which allocations to move so that requests for whole cards fit: a plan, in an order that can be carried out.

To move is to leave a place and come back at another one. Those move who hold a card that is freed; nobody
moves only to make room for another one who moves. They go, the largest first, each where it fits tightest.

Whoever moves has room somewhere as the books are. Of all such plans the cheapest is taken (`Cost`): per node
every set of cards to free is looked at, and units are spread over the nodes so that the sum is least. If somebody
of that plan finds no place after all, the next cheapest is tried; after some tries room is made for one unit after
the other, each at least cost, and the plan says so. Quotas are asked for the units of the plan only: who moves holds
as much as before.

Every trial is rolled back. Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import Columns, Occupancy, start
from ullage.core.books.trial import trial
from ullage.core.evicting.movable import Stays, movable, priority_of
from ullage.core.evicting.victims import NO_BUDGETS, Budgets
from ullage.core.kernel import freeing as at
from ullage.core.kernel import victims
from ullage.core.kernel.columns import CAP, Rows
from ullage.core.placing.candidates import find, refusals_on
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.feasibility import over_quota
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.placement import Table, table_of
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose, placement_of, select
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import invalid
from ullage.model.rejection import Code, Cure, Rejection

TRIES = 32
"""Plans that are thought through before units are looked at one by one, and for each of these."""

MOST_UNITS = 128
"""At 1,000 nodes a plan for so many takes some seconds where there is none."""

_ONE = 1 << 40
"""What moving one more costs: more than all cards together, so that the number counts first."""

# --- values ---


class Cost(NamedTuple):
    """What a plan costs; the smallest is taken, compared from the first field on.

    The highest priority of those who move, how many they are, and how much they hold in thousandths of cards.
    """

    highest: int
    number: int
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Move:
    """An allocation that goes to another place. With a `gap` it must leave before there is room for it there."""

    allocation: Allocation
    to: Choice
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Where the units go once the moves are made, in this order; without moves they fit as it is.

    `age_s` is for how long the one of those who move runs that has run longest; `least` says that no such plan
    costs less; `stays` counts those who may not be moved.
    """

    units: tuple[Choice, ...]
    moves: tuple[Move, ...]
    cost: Cost
    age_s: float
    least: bool
    stays: Mapping[Stays, int]


@dataclass(frozen=True, slots=True)
class NoConsolidation(Refusal):
    """That moving makes room for fewer, as the rejection says, and how many may not be moved, by reason."""

    stays: Mapping[Stays, int] = field(default_factory=dict)


# --- the plan ---


def consolidate(
    fleet: Fleet,
    rules: Rules,
    wanted: Request,
    units: int,
    now: float,
    *,
    up_to: int | None = None,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
    tries: int = TRIES,
) -> Consolidation | NoConsolidation:
    """How so many requests like the wanted one come to fit; nobody above the priority `up_to` is moved.

    Raises:
        InvalidRequest: it does not ask for whole cards, or the number of units is out of range.

    """
    if not wanted.requirement.whole:
        raise invalid("resreq", str(wanted.requirement), "room is made for whole cards: ask for them, such as gpu=8")
    check_units(units)
    may_move, stays = movable(fleet, now, up_to, budgets)
    with reserving(fleet, nominations.all(fleet)):
        look = _Look(fleet, replace(rules, quotas=Quotas(), strategy="best-fit"), wanted, units, tries)
        holders = _Holders(look, may_move)
        stays = stays | holders.without_room()
        for highest in sorted({priority_of(allocation) for allocation in may_move}) or [0]:
            plan = _found(look, holders, highest)
            if len(plan.units) == units:
                over = over_quota(fleet, rules, wanted, [unit.gpus for unit in plan.units])
                return NoConsolidation(over, stays=stays) if over else _told(look, plan, now, stays)
        fewer = min(_Search(look, holders, highest).most(), units - 1)
        if fewer and not plan.units:
            plan = _found(replace(look, units=fewer), holders, highest)
        had = len(plan.units)
        empty = replace(look, fleet=fleet.emptied())
        cure = Cure.CAPACITY if _table(empty, wanted).room.sum() >= units else Cure.NODE_CHANGE
        return NoConsolidation((Rejection(Code.NO_MOVES_HELP, cure, units, had),), stays=stays)


def check_units(units: int) -> None:
    """Refuse a number of requests that no room is made for at once.

    Raises:
        InvalidRequest: it is out of range.

    """
    if not 1 <= units <= MOST_UNITS:
        raise invalid("count", units, f"1 to {MOST_UNITS} is needed")


def _told(look: _Look, plan: _Plan, now: float, stays: Mapping[Stays, int]) -> Consolidation:
    moves = [move for move in plan.moves if move.to.gpus != move.allocation.gpus]
    moved = [move.allocation for move in moves]
    cost = Cost(max(map(priority_of, moved), default=0), len(moved), sum(map(look.milli, moved)))
    age = max((now - start(allocation) for allocation in moved), default=0.0)
    return Consolidation(plan.units, tuple(_in_order(look, moves)), cost, age, plan.least, stays)


# --- which ---


@dataclass(frozen=True, slots=True)
class _Look:
    """What is wanted, on books in which room that is kept for others is charged."""

    fleet: Fleet
    rules: Rules
    wanted: Request
    units: int
    tries: int

    def milli(self, allocation: Allocation) -> int:
        return self.fleet.resources(allocation.requirement).gpu_milli


@dataclass(frozen=True, slots=True)
class _Plan:
    units: tuple[Choice, ...]
    moves: tuple[Move, ...]
    least: bool = True


Ban = tuple[int, int, int]
"""A node, a number of units, and the cards that are not to be freed for them, as bits."""


class _Holders:
    """Everybody who holds cards, by node: rows for the kernel, and who they are."""

    def __init__(self, look: _Look, movable: Sequence[Allocation]) -> None:
        fleet, there, may = look.fleet, Occupancy.of(look.fleet).columns(), {allocation.id for allocation in movable}
        self.allocations, self.starts = there.who, there.first
        self.entries, self.charges = there.entries, there.charges
        self.rows: Rows = np.zeros((len(there.who), at.HOLDER_COLUMNS), dtype=np.int64)
        self.rows[:, at.MASK] = _masks(fleet, there)
        self.rows[:, at.ITS_CPU] = there.entries[:, victims.CPU]
        self.rows[:, at.ITS_MEMORY] = there.entries[:, victims.MEMORY]
        self.rows[:, at.COST] = [_ONE + look.milli(allocation) for allocation in self.allocations]
        self.stays: Rows = np.zeros(len(fleet.nodes), dtype=np.int64)
        self._look = look
        self._may = np.array([allocation.id in may for allocation in self.allocations], dtype=np.bool_)
        self._priorities = np.array(list(map(priority_of, self.allocations)), dtype=np.int64)
        asked = dict.fromkeys(allocation.requirement for allocation in self.allocations)
        number = {requirement: k for k, requirement in enumerate(asked)}
        self._asked = list(asked)
        self._asks = np.array([number[allocation.requirement] for allocation in self.allocations], dtype=np.int64)

    def _roomy(self) -> npt.NDArray[np.bool_]:
        """Whether there is room anywhere for what each of them asks."""
        look = self._look
        requests = (Request("any", requirement) for requirement in self._asked)
        roomy = [bool(_table(look, request).room.any()) for request in requests]
        found: npt.NDArray[np.bool_] = np.array(roomy, dtype=np.bool_)[self._asks]
        return found

    def without_room(self) -> dict[Stays, int]:
        """How many might be moved, but have no room anywhere."""
        number = len({self.allocations[k].id for k in (self._may & ~self._roomy()).nonzero()[0].tolist()})
        return {Stays.NOWHERE: number} if number else {}

    def allow(self, highest: int) -> None:
        """Only those up to this priority may be moved, who have room somewhere."""
        self.rows[:, at.MOVABLE] = self._may & (self._priorities <= highest) & self._roomy()

    def settle(self, plan: _Plan) -> None:
        """Those who moved move no more, and the cards that were given out stay as they are."""
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
        yield
        self.rows, self.stays = before

    def of(self, row: int, mask: int) -> list[Allocation]:
        """Who holds one of these cards of a node."""
        here = range(self.starts.item(row), self.starts.item(row + 1))
        return [self.allocations[holder] for holder in here if self.rows.item(holder, at.MASK) & mask]


def _masks(fleet: Fleet, there: Columns) -> Rows:
    """The cards that each occupant holds on the node where it is met, as bits."""
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
    """Those of the cards that are on the node, as bits; all that the kernel does not tell apart are one."""
    cards, mask = fleet.cards_on(row), 0
    for uuid in gpus:
        card = fleet.card_of.get(uuid, -1)
        if card in cards:
            mask |= 1 << min(card - cards.start, at.BITS)
    return mask


def _table(look: _Look, request: Request) -> Table:
    return table_of(look.fleet, request.requirement, look.rules.strategy_of(request), look.rules.cap).refreshed()


class _Search:
    """Plans in the order of their costs, in which nobody above a priority moves."""

    def __init__(self, look: _Look, holders: _Holders, highest: int) -> None:
        self._look, self._fleet, self._holders = look, look.fleet, holders
        holders.allow(highest)
        asked = look.wanted.requirement
        self._shape = shape_of(look.fleet, asked).rows.copy()
        self._shape[0, CAP] = look.rules.cap
        self._opened = _table(look, look.wanted).opened
        self._empty = look.fleet.emptied()
        largest = int(np.diff(look.fleet.gpu_start).max(initial=0))
        most = max(1, min(look.units, largest // asked.gpu_count))
        self._costs: Rows = np.zeros((len(look.fleet.nodes), most + 1), dtype=np.int64)
        self._picks = np.zeros_like(self._costs)
        self._free(np.arange(len(look.fleet.nodes)), ())

    def most(self) -> int:
        """How many units would fit if all who may be moved were gone, and found a place."""
        able = self._costs < at.NEVER
        return int((able * np.arange(self._costs.shape[1])).max(axis=1, initial=0).sum())

    def cheapest(self) -> _Plan | None:
        """The first plan by cost in which everybody finds a place.

        What is done to a node is banned, one after the other, to come to all other plans: each of them differs
        from the one that failed in at least one node.
        """
        seen: set[frozenset[Ban]] = {frozenset()}
        waiting: list[tuple[int, int, frozenset[Ban], list[Ban]]] = []
        self._push(waiting, frozenset(), len(seen))
        for _ in range(self._look.tries):
            if not waiting:
                return None
            _, _, bans, chosen = heappop(waiting)
            plan = self._placed(chosen)
            if plan is not None:
                return plan
            for ban in chosen:
                other = bans | {ban}
                if other not in seen:
                    seen.add(other)
                    self._push(waiting, other, len(seen))
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

    def _placed(self, chosen: Sequence[Ban]) -> _Plan | None:
        """The plan that frees these cards; None if somebody finds no place."""
        fleet = self._fleet
        leaving = [allocation for row, _, mask in chosen for allocation in self._holders.of(row, mask)]
        with trial(fleet):
            for allocation in leaving:
                fleet.release(allocation.id)
            units = [unit for row, count, mask in chosen for unit in self._take(row, count, mask)]
            moves = tuple(self._moves(leaving)) if len(units) == self._look.units else ()
        complete = len(units) == self._look.units and len(moves) == len(leaving)
        return _Plan(tuple(units), moves) if complete else None

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

    def _moves(self, leaving: Sequence[Allocation]) -> Iterator[Move]:
        """Places for those who move, as far as there are any."""
        fleet, rules = self._fleet, self._look.rules
        for allocation in sorted(leaving, key=lambda a: (-self._look.milli(a), -a.requirement.cpu_milli, a.id)):
            request = _asked(allocation)
            if _table(self._look, request).best() is None:
                return
            found = choose(fleet, rules, request)
            if not isinstance(found, Choice):
                return
            fleet.charge(_at(allocation, found), force=True)
            yield Move(allocation, found)


def _found(look: _Look, holders: _Holders, highest: int) -> _Plan:
    """The plan for all units, or for as many as there is a way for one after the other; none if they are too many."""
    search = _Search(look, holders, highest)
    if search.most() < look.units:
        return _Plan((), ())
    return search.cheapest() or _one_by_one(look, holders, highest)


def _one_by_one(look: _Look, holders: _Holders, highest: int) -> _Plan:
    """Room for one unit after the other, each at least cost beside those before it; as many as there are ways for."""
    units: list[Choice] = []
    moves: list[Move] = []
    single = replace(look, units=1)
    with trial(look.fleet), holders.trial():
        while len(units) < look.units:
            plan = _Search(single, holders, highest).cheapest()
            if plan is None:
                break
            _enter(look, plan, len(units))
            holders.settle(plan)
            units += plan.units
            moves += plan.moves
    return _Plan(tuple(units), tuple(moves), least=False)


def _enter(look: _Look, plan: _Plan, number: int) -> None:
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
        fleet.charge(_at(move.allocation, move.to), force=True)


def _asked(allocation: Allocation) -> Request:
    """What an allocation would ask for again."""
    return Request(allocation.id, allocation.requirement, allocation.claim or Claim(), "best-fit")


def _at(allocation: Allocation, to: Choice) -> Allocation:
    moved = replace(allocation, node=to.node, gpus=to.gpus, charges=to.charges, cards=())
    return replace(moved, placement=to.placement)


# --- in which order ---


def _in_order(look: _Look, moves: Sequence[Move]) -> Iterator[Move]:
    """The moves so that each finds room when its turn comes; who cannot wait for that leaves with a gap."""
    fleet, pending = look.fleet, list(moves)
    out: list[Move] = []
    with trial(fleet):
        while pending:
            free = next((move for move in pending if _can_go(look, move)), None)
            if free is not None:
                fleet.release(free.allocation.id)
                fleet.charge(_at(free.allocation, free.to), force=True)
            else:
                free = replace(
                    min(pending, key=lambda move: (look.milli(move.allocation), move.allocation.id)), gap=True
                )
                fleet.release(free.allocation.id)
                out.append(free)
            pending = [move for move in pending if move.allocation.id != free.allocation.id]
            yield free
            for back in [move for move in out if _free_for(look, move)]:
                fleet.charge(_at(back.allocation, back.to), force=True)
                out.remove(back)


def _can_go(look: _Look, move: Move) -> bool:
    with trial(look.fleet):
        look.fleet.release(move.allocation.id)
        return _free_for(look, move)


def _free_for(look: _Look, move: Move) -> bool:
    cards = [look.fleet.card_of[uuid] for uuid in move.to.gpus]
    return not refusals_on(look.fleet, look.rules, _asked(move.allocation), cards)
