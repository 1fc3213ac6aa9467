"""Chooses nodes and cards from one table of room and scores for each shape of requests.

A shape is all that decides placement: equal requirements under one strategy share a table. When an allocation changes
a node, only the row of that node is computed again, so a decision does not scan the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.modes import mode_asked
from ullage.core.kernel import columns as at
from ullage.core.kernel.alignment import choose_aligned as settle
from ullage.core.kernel.board import CLOSENESS, OWN_PICK, SCALE, WIDEST
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.fewest import AskedRows, Leaving, fewest
from ullage.core.kernel.room import look_at_cards, refresh_room, room_on
from ullage.core.kernel.tree import NO_ROOM, grow, planted, winner
from ullage.core.placing.policy import Policy
from ullage.core.strategies import PARTS_BY, STRATEGIES, strategy_named
from ullage.core.strategies.strategy import Strategy
from ullage.core.verdict.cards import charges_on
from ullage.core.verdict.partition import fitting
from ullage.core.verdict.shape import Shape, shape_of
from ullage.model.affinity import NodeAffinity
from ullage.model.allocation import Allocation, Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import ZonePlacement

WHOLE_BY = "best-fit"
"""The strategy of what sessions ask for, but for parts of cards, if the policy names none."""

_MAX_TABLES = 1024
"""Request shapes remembered at a time; ones beyond cost their table again."""


class Placer:
    """Places requests on one fleet, charging it as it goes.

    `strategy` goes before the policy's; `cap` bounds the allocations on a node instead of the node's
    own `max_executors`.
    """

    def __init__(self, fleet: Fleet, policy: Policy, strategy: Strategy | None = None, cap: int | None = None) -> None:
        self.fleet = fleet
        named = policy.strategy
        self._whole = strategy or strategy_named(named or WHOLE_BY)
        self._parts = strategy or strategy_named(named or PARTS_BY)
        self._cap = cap

    def room(self, requirement: ResourceRequirement) -> Column:
        """Return per node how many units of this requirement fit now."""
        return table_of(self.fleet, requirement, self._strategy(requirement), self._cap).room

    def place(
        self,
        allocation_id: str,
        requirement: ResourceRequirement,
        also: Placer | None = None,
        closed: Iterable[int] = (),
    ) -> Allocation | None:
        """Pick a node and cards, charge them here and in `also`, and return the allocation.

        With `also`, a place counts only if it is free in both books: now, and in the outlook where
        capacity is held for somebody else. Then nothing goes to the rows of nodes that are `closed`.
        None means nothing fits.
        """
        table = table_of(self.fleet, requirement, self._strategy(requirement), self._cap)
        fleet, taken = self.fleet, None
        fleet.check_new(allocation_id)
        if also is not None:
            chosen = _choose_in_both(table.refreshed(), also.table(requirement), closed)
        elif table.partitioned:
            chosen = table.choose()
        else:
            chosen = taken = table.take()
        if chosen is None:
            return None
        row, cards = chosen
        allocation = Allocation(
            allocation_id,
            fleet.nodes[row].name,
            requirement,
            fleet.uuids(cards),
            charges=table.charges(cards),
            placement=table.placed,
        )
        if taken is not None:
            fleet.enter(allocation, row, cards)
        else:
            fleet.charge(allocation, cards=cards)
        if also is not None:
            # There is room on the card; the position of the partition is chosen here.
            also.fleet.charge(allocation, force=True)
        return allocation

    def _strategy(self, requirement: ResourceRequirement) -> Strategy:
        return self._parts if requirement.shares_cards else self._whole

    def table(self, requirement: ResourceRequirement) -> Table:
        """Return the table of this shape, up to date."""
        return table_of(self.fleet, requirement, self._strategy(requirement), self._cap).refreshed()


def _choose_in_both(table: Table, also: Table, closed: Iterable[int]) -> tuple[int, list[int]] | None:
    """Choose the best node and cards that are free in the books of both tables, except on `closed` nodes."""
    ranked = np.where(also.ranked > NO_ROOM, table.ranked, NO_ROOM)
    for row in closed:
        ranked[row] = NO_ROOM
    while len(ranked):
        row = int(ranked.argmax())
        if ranked[row] == NO_ROOM:
            break
        cards = table.pick(row, also)
        if cards is not None:
            return row, cards
        ranked[row] = NO_ROOM
    return None


def table_of(fleet: Fleet, requirement: ResourceRequirement, strategy: Strategy, cap: int | None = None) -> Table:
    """Return the table of a requirement under a strategy; `cap` is as in `Placer`."""
    shape, strategy = shape_of(fleet, requirement), strategy.on(fleet)
    key = (shape, strategy, cap)
    table = fleet.tables.get(key)
    if not isinstance(table, Table):
        if len(fleet.tables) >= _MAX_TABLES:
            fleet.tables.clear()
        table = fleet.tables[key] = Table(fleet, shape, strategy, cap)
    return table


def shapes_under(fleet: Fleet, name: str) -> list[ResourceRequirement]:
    """Return the requirements with a table under the strategies of that name, the newest last."""
    return list(dict.fromkeys(shape.asked for shape, strategy, _ in _keys(fleet) if strategy.name == name))


def drop_tables(fleet: Fleet, strategy: object) -> None:
    """Keep no tables of a strategy that is of no more use."""
    for key in _keys(fleet):
        if key[1] is strategy:
            del fleet.tables[key]


def _keys(fleet: Fleet) -> list[tuple[Shape, Strategy, int | None]]:
    return [key for key, table in fleet.tables.items() if isinstance(table, Table) and isinstance(key, tuple)]


def warm() -> None:
    """Have all named strategies compiled, or what was compiled before read back."""
    for strategy in STRATEGIES.values():
        warm_strategy(strategy.on)


def warming_fleet() -> Fleet:
    """One node with two cards, to try a strategy on."""
    gpus = Gpu("warm-0", 0, vram_bytes=1 << 30, compute_gflops=1000), Gpu("warm-1", 1)
    return Fleet([Node("warm", 1000, 1 << 30, gpus)])


def warm_strategy(made: Callable[[Fleet], Strategy]) -> None:
    """Have the functions of a strategy compiled by using it on a small fleet, for which it is made."""
    fleet = warming_fleet()
    strategy = made(fleet)
    placer, shape = Placer(fleet, Policy(), strategy), ResourceRequirement.from_string("gpu=0.5")
    for uid in ("first", "second"):
        placer.place(uid, shape)
    fleet.release("first")
    placer.table(shape)
    placer.room(shape)
    if strategy.stateless:
        placer.table(shape).several(1)
    table_of(fleet, ResourceRequirement.from_string("gpu=1,vram=1g,isolation=partitioned"), strategy)
    for asked in (shape, ResourceRequirement.of(gpu=1)):  # explanations ask about single nodes
        strategy.node(fleet, 0, shape_of(fleet, asked), [1])
        strategy.pick(fleet, 0, shape_of(fleet, asked), [1])
        strategy.terms(fleet, 0, shape_of(fleet, asked), [1])


def _said_of(fleet: Fleet, asked: NodeAffinity, notes: int, own: bool) -> Rows:
    """Return for each node whether it is not excluded, and what preferred terms add to its score.

    The arrays are shared by all requests with the same terms, except for tables that write to them (`own`).
    """
    known = fleet.tables.get(asked)
    if isinstance(known, np.ndarray) and not own:
        return known
    said = np.zeros((len(fleet.nodes), at.TABLE_COLUMNS + notes), dtype=np.int64)
    said[:, at.OPEN] = fleet.schedulable
    if fleet.exclusion.excludes(asked):
        said[:, at.OPEN] &= fleet.exclusion.allowed(asked)
    if asked.preferred:
        said[:, at.BONUS] = fleet.exclusion.bonus(asked)
    if not own:
        fleet.tables[asked] = said
    return said


class Table:
    """Room and rank of every node for one requirement."""

    def __init__(self, fleet: Fleet, shape: Shape, strategy: Strategy, cap: int | None = None) -> None:
        self._fleet = fleet
        self._shape = shape
        self._asked = shape.asked
        self._strategy = strategy
        self._rows = shape.rows.copy()
        self._rows[0, at.CAP] = -1 if cap is None else cap
        zones = fleet.board.rules
        self._relative = bool(self._rows[0, at.NEEDS]) and zones.relative
        if self._rows[0, at.NEEDS]:
            first = self._rows[len(self._rows) - self._rows[0, at.NAMED] - self._rows[0, at.NEEDS]]
            first[CLOSENESS] = round(strategy.closeness * zones.weight * SCALE)
            first[OWN_PICK] = not strategy.near
            first[WIDEST] = zones.relative
            self._first_need = first
        own = bool(strategy.notes) or self._relative
        self._said = _said_of(fleet, shape.asked.nodes, strategy.notes, own)
        self._tree = planted(len(fleet.nodes))
        self._space = np.zeros(int(np.diff(fleet.gpu_start).max(initial=0)), dtype=np.int64)
        self._own: tuple[Any, ...] = self._rows, self._space, fleet.board.store, self._said, self._tree, strategy.state
        self.partitioned = shape.partitioned
        """Whether room on a card does not follow from sums."""
        self._mode = mode_asked(shape.asked)
        self._out = np.zeros(shape.asked.gpu_count, dtype=np.int64)
        self._aligned = bool(shape.rows[0, at.NEEDS])
        self._seated = self._aligned and fleet.board.seats(shape.asked)
        self.placed: ZonePlacement | None = None
        """The zones of the last chosen unit, and what it has there.

        None if they were not requested: its cards imply the zones, and it has no CPUs of its own.
        """
        self._room: Column = np.zeros(0, dtype=np.int64)
        self._room_clock = -1
        self.ranked = self._tree[len(self._tree) // 2 :][: len(fleet.nodes)]
        """Scores of the nodes, `NO_ROOM` where the request does not fit."""
        self._fill()
        self._clock = fleet.clock
        self._keep_relative()

    @property
    def room(self) -> Column:
        """Return how many units fit on each node now."""
        fleet, since = self._fleet, self._room_clock
        self._room_clock = fleet.clock
        if since < 0:
            self._room = np.zeros(len(fleet.nodes), dtype=np.int64)
        if self.partitioned:
            for row in fleet.touched_since(since):
                open_ = self._said[row, at.OPEN]
                self._room[row] = open_ and room_on(fleet.node_rows, row, self._rows, self._units_on(row))
        else:
            board, said = fleet.board.store, self._said
            refresh_room(*self._books, fleet.newest, since, self._rows, self._space, board, said, self._room)
        return self._room

    @property
    def opened(self) -> npt.NDArray[np.bool_]:
        """Per node, whether it takes work and is not excluded, whatever is free there."""
        return np.not_equal(self._said[:, at.OPEN], 0)

    def refreshed(self) -> Table:
        """Itself, with the rows up to date that were touched since the last look."""
        if self._clock != self._fleet.clock:
            self._refresh()
            self._keep_relative()
        return self

    def _refresh(self) -> None:
        fleet, since = self._fleet, self._clock
        self._clock = fleet.clock
        if self.partitioned:
            for row in fleet.touched_since(since):
                self._judge(row)
        else:
            self._strategy.loops.refresh(*self._books, fleet.newest, since, *self._own)

    @property
    def _books(self) -> tuple[Rows, Rows]:
        return self._fleet.node_rows, self._fleet.card_rows

    def _keep_relative(self) -> None:
        """Score all nodes again if closeness is relative to the widest candidate, and that is another one now."""
        if not self._relative:
            return
        widest = 1 + int(self._said[self.ranked > NO_ROOM, at.SPAN].max(initial=0))
        if self._first_need[WIDEST] != widest:
            self._first_need[WIDEST] = widest
            self._fill()

    def _fill(self) -> None:
        if self.partitioned:
            for row in range(len(self._fleet.nodes)):
                self._judge(row)
        else:
            self._strategy.loops.fill(*self._books, *self._own)

    def _judge(self, row: int) -> None:
        """Enter a node for a request for partitions, whose room on a card is not a matter of sums."""
        units = self._units_on(row)
        self._strategy.loops.judge(*self._books, row, self._rows, units, *self._own[2:])

    def _units_on(self, row: int) -> Rows:
        """Return 1 for each card of a node that takes a share of a unit, else 0; for partitions how many shares."""
        units = look_at_cards(*self._books, row, self._rows, self._space)
        if self.partitioned:
            for k in units.nonzero()[0].tolist():
                units[k] = fitting(self._fleet, self._fleet.cards_on(row).start + k, self._asked)
        return units

    def choose(self) -> tuple[int, list[int]] | None:
        """Return the best node with room and the cards for one unit there. The table is updated first."""
        if self.partitioned:
            self.refreshed()
            row = self.best()
            return None if row is None else (row, self.pick(row) or [])
        row = self._chosen(0)
        return None if row < 0 else (row, self._seat(row, self._out.tolist()))

    def take(self) -> tuple[int, list[int]] | None:
        """Choose, and charge the columns: `Fleet.enter` must follow. Not for partitions."""
        row, fleet = self._chosen(self._mode), self._fleet
        if row < 0:
            return None
        fleet.clock, fleet.newest = fleet.clock + 1, row
        return row, self._seat(row, self._out.tolist())

    def _seat(self, row: int, cards: list[int]) -> list[int]:
        """Remember what was decided of zones for these cards of a node."""
        fleet = self._fleet
        if self._seated:
            self.placed = fleet.board.placement(row, fleet.uuids(cards), fleet.zones_of(cards))
        return cards

    def _chosen(self, mode: int) -> int:
        if self._relative:
            self.refreshed()
        fleet, since = self._fleet, self._clock
        self._clock = clock = fleet.clock
        books = fleet.node_rows, fleet.card_rows, fleet.newest, since
        return self._strategy.loops.choose(*books, *self._own, self._out, clock, mode)

    def several(
        self, units: int, rows: npt.NDArray[np.bool_] | None = None
    ) -> tuple[list[int], list[list[int]], list[float]]:
        """Nodes, cards and scores of up to so many units, each chosen as `choose` would with those before it charged.

        Only among `rows`, if they are given. Nothing is charged. For stateless strategies, and not for partitions.
        """
        self.refreshed()
        tree, count = self._tree.copy(), self._asked.gpu_count
        if rows is not None:
            tree[len(tree) // 2 :][: len(rows)][~rows] = NO_ROOM
            grow(tree)
        found = np.zeros(units, np.int64), np.zeros((units, count), np.int64), np.zeros(units)
        own = (
            self._rows,
            self._space,
            self._fleet.board.store,
            self._said.copy(),
            tree,
            self._strategy.state,
            self._mode,
        )
        placed = self._strategy.drafts.several(*self._books, *own, *found)
        at_row, at_cards, at_score = found
        return at_row[:placed].tolist(), at_cards[:placed].tolist(), at_score[:placed].tolist()

    def fewest(self, leaving: Leaving, units: int, known: int = 0, room: Column | None = None) -> list[int] | None:
        """Return which victims must leave so that so many units fit; None if they do not fit without all of them.

        So many of the first are `known` not to be enough. Then `room` becomes that without all. Not for partitions.
        """
        go = np.zeros(len(leaving.first) - 1, np.bool_)
        board = self._fleet.board
        asked = AskedRows(self._rows, self._space, self._said, store=board.store, supplies=board.supplies)
        here = self.room.copy() if room is None else room
        fits = fewest(*self._books, asked, here, leaving, units, known, go)
        return go.nonzero()[0].tolist() if fits else None

    def charges(self, cards: Sequence[int]) -> tuple[Charge, ...]:
        """Return what one unit takes of each of these cards; empty for whole cards."""
        if self._asked.whole:
            return ()
        if self.partitioned:
            return charges_on(self._fleet, cards, self._asked)
        shares, kinds = self._shape.charges, self._fleet.card_rows
        return tuple([shares[kinds.item(card, at.KIND)] for card in cards])

    def best(self) -> int | None:
        """Return the best node with room, of equal ones the first by name. The table must be up to date."""
        row = winner(self._tree)
        return None if row < 0 else row

    def eligible(self, row: int) -> list[int]:
        """Return the cards of a node that take a share of one unit now."""
        if not self._asked.gpu_count:
            return []
        first = self._fleet.cards_on(row).start
        return [first + k for k in self._units_on(row).nonzero()[0].tolist()]

    def pick(self, row: int, also: Table | None = None) -> list[int] | None:
        """Return cards for one unit that are free in the books of `also` too; None if they are too few."""
        eligible = self.eligible(row)
        if also is None:
            return self.pick_among(row, eligible)
        there = set(also.eligible(row))
        free = self.supplies_free(row)
        alone = free.copy()
        np.minimum(free, also.supplies_free(row), out=free)
        cards = self.pick_among(row, [card for card in eligible if card in there])
        free[:] = alone
        return cards

    def supplies_free(self, row: int) -> Column:
        """Return the free amount of each supply in the zones of a node, as a view."""
        return self._fleet.board.free_on(row)

    def pick_among(self, row: int, eligible: Sequence[int]) -> list[int] | None:
        """Return cards for one unit out of these of a node; None if they are too few, or zones refuse them."""
        if len(eligible) < self._asked.gpu_count:
            return None
        if self._aligned:
            first = self._fleet.cards_on(row).start
            units = self._strategy.units(self._fleet, row, eligible)
            if not settle(*self._books, row, self._rows, units, self._fleet.board.store):
                return None
            eligible = [first + k for k in units.nonzero()[0].tolist()]
        if not self._asked.gpu_count:
            return self._seat(row, [])
        return self._seat(row, self._strategy.pick(self._fleet, row, self._shape, eligible))

    def terms(self, row: int) -> dict[str, float]:
        """Return the terms of the score of a node with room (see `Strategy.terms`). The table must be up to date."""
        return self._strategy.terms(self._fleet, row, self._shape, self.eligible(row))

    def score(self, row: int, eligible: list[int]) -> float:
        """Return the score of a node: that of the strategy plus preferred terms. The table must be up to date."""
        if self.ranked.item(row) > NO_ROOM and eligible == self.eligible(row):
            return self.ranked.item(row)
        return self._strategy.node(self._fleet, row, self._shape, eligible) + self._said.item(row, at.BONUS)
