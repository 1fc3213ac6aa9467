"""The books: what every node and card has left, and the journal that can take any step back.

Inventory is static; allocations are a ledger keyed by id; free capacity is derived and kept in
columns, one row per node (sorted by name) and one flat row per card with a start offset per node.

Law: the columns always equal inventory minus ledger, less the usage of others (`set_other_usage`).
A column is negative where capacity shrank below what is held. Such a node has no room, and nothing is
evicted for it.

All trial work goes through `checkpoint`, then `rollback` (columns and ledger equal the old ones
exactly) or `keep` (the step becomes part of the enclosing trial). No caller writes its own undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import sub

import numpy as np
import numpy.typing as npt

from ullage.core.books.card_room import takes_part
from ullage.core.books.contents import RowContents, Step
from ullage.core.books.inventory import Inventory
from ullage.core.books.modes import mode_of, modes_of
from ullage.core.books.usage import OtherUsage, Usage, usage_of
from ullage.core.kernel import columns as at
from ullage.core.kernel.charge import LARGEST_SIZE, TAKEN_COLUMNS, follow_all
from ullage.core.kernel.charge import charge as charge_columns
from ullage.core.topology.board import Board, lies_beside_cards
from ullage.core.topology.rules import AS_USUAL, ZoneRules
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.error import Conflict, NotFound
from ullage.model.gpu import Gpu
from ullage.model.node import Node, NodeState
from ullage.model.profile import Profiles
from ullage.model.profiles import SHIPPED
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.resources import MILLI

Column = npt.NDArray[np.int64]
"""One number per node or per card."""

_MOST_OTHER_USAGE = 2**60
"""More than any node has: sums of what anybody may write on a pod stay within a column."""


class Fleet(Inventory):
    """Columns over nodes and cards, derived from the inventory and the allocations charged so far.

    Compute and vram of a card are in GFLOPS and bytes, or in millionths where its capacity is not known. `zone_rules`
    say how zones are compared.

    Raises:
        InvalidRequest: the inventory is not valid, see `check_inventory`.

    """

    def __init__(
        self,
        nodes: Iterable[Node],
        allocations: Iterable[Allocation] = (),
        *,
        profiles: Profiles = SHIPPED,
        zone_rules: ZoneRules = AS_USUAL,
    ) -> None:
        super().__init__(nodes, profiles)
        self.board = Board(self.nodes, zone_rules)
        """The zones of the machines, and what is free in them."""
        self._derive_columns()
        self.ledger: dict[str, Allocation] = {}
        self.other_usage: dict[str, OtherUsage] = {}
        """Usage outside the ledger, by node; also of nodes that are not known."""
        self.usage: dict[str, Usage] = {}
        self.tables: dict[object, object] = {}
        """Derived tables that follow these books (see `core/placing/placement.py`)."""
        self.strategies: dict[str, object] = {}
        """Strategies that were made for these books, by name (see `core/strategies/learned.py`)."""
        self.clock = 0
        """Grows by one with every changed row: a table that is of `clock` c lacks changes from c on."""
        self.newest = len(self.nodes) - 1
        """The row that changed last; those before it are chained in the columns."""
        self._empty: Fleet | None = None
        self._opened: Fleet | None = None
        self._requested: Fleet | None = None
        self.dirty: set[int] = set()
        """Rows of nodes whose allocations changed; `core/books/occupancy.py` reads and clears them."""
        self.leaving: set[str] = set()
        """Allocations in the ledger that were asked to leave and have not left."""
        self.gangs: dict[str, set[str]] = {}
        """Per gang, the members that are in the ledger."""
        self.claim_changes = 0
        """Grows with every change of an allocation that is not an executor's."""
        self.contents = RowContents(self.node_rows)
        self._journal: list[Step] = []
        self._open = 0
        for allocation in allocations:
            self.charge(allocation, force=True)

    def _derive_columns(self) -> None:
        """Rows as `core/kernel/columns.py` says; each column also has a name of its own, as a view."""
        nodes = self.nodes
        self.node_rows = np.zeros((len(nodes), at.NODE_COLUMNS), dtype=np.int64)
        self.card_rows = np.zeros((len(self.cards), at.CARD_COLUMNS), dtype=np.int64)
        self._name_columns()
        self.cpu_total[:] = self.cpu_free[:] = [node.allocatable.cpu_milli for node in nodes]
        self.memory_total[:] = self.memory_free[:] = [node.allocatable.memory_bytes for node in nodes]
        self.gpu_total[:] = self.gpu_free[:] = [node.allocatable.gpu_milli // MILLI for node in nodes]
        self.slots_total[:] = self.slots_free[:] = [node.max_executors for node in nodes]
        self.node_rows[:, at.FIRST_CARD] = self.gpu_start[:-1]
        self.node_rows[:, at.AFTER_CARDS] = self.gpu_start[1:]
        self.node_rows[:, at.MACHINE] = self.board.machine_of
        self.node_rows[:, at.CHANGED] = self.node_rows[:, at.FREED] = -1
        self.node_rows[:, at.BEFORE] = np.arange(-1, len(nodes) - 1)
        self.node_rows[:, at.AFTER] = np.arange(1, len(nodes) + 1)
        self.node_rows[-1:, at.AFTER] = -1
        self.compute_total[:] = self.compute_free[:] = [gpu.compute for gpu in self.cards]
        self.vram_total[:] = self.vram_free[:] = [gpu.vram for gpu in self.cards]
        homes = zip(self.card_row.tolist(), self.cards, strict=True)
        self.card_rows[:, at.ZONES] = [self.board.mask_of(row, gpu) for row, gpu in homes]
        self.card_rows[:, at.INDEX] = [gpu.index for gpu in self.cards]
        self.card_rows[:, at.KIND] = self.kind_of
        by_uuid = sorted(range(len(self.cards)), key=lambda card: (self.card_row[card], self.cards[card].uuid))
        self.card_rows[by_uuid, at.PLACE] = np.arange(len(by_uuid))
        follow_all(self.card_rows)
        self._taken = np.zeros((MAX_CARDS, TAKEN_COLUMNS), dtype=np.int64)
        """What one allocation takes of its cards, on its way to the columns."""
        self._write = _as_numbers(self._taken)
        self.holders: list[dict[str, Charge | None]] = [{} for _ in self.cards]
        """Per card, who holds it and how much; None means the whole card."""
        self.sizes: list[dict[int, int]] = [{} for _ in nodes]
        """Per node, how many allocations of each size run there (see `RUNS`)."""

    def _name_columns(self) -> None:
        nodes, cards = self.node_rows, self.card_rows
        self.cpu_free, self.cpu_total = nodes[:, at.CPU_FREE], nodes[:, at.CPU_TOTAL]
        self.memory_free, self.memory_total = nodes[:, at.MEMORY_FREE], nodes[:, at.MEMORY_TOTAL]
        self.slots_free, self.slots_total = nodes[:, at.SLOTS_FREE], nodes[:, at.SLOTS_TOTAL]
        self.gpu_free, self.gpu_total = nodes[:, at.GPU_FREE], nodes[:, at.GPU_TOTAL]
        self.compute_free, self.compute_total = cards[:, at.COMPUTE_FREE], cards[:, at.COMPUTE_TOTAL]
        self.vram_free, self.vram_total = cards[:, at.VRAM_FREE], cards[:, at.VRAM_TOTAL]
        self.card_users, self.card_modes = cards[:, at.USERS], cards[:, at.MODES]

    # --- queries ---

    def card_holders(self, cards: Iterable[int]) -> list[str]:
        """Ids of the allocations that hold any of these cards, in order."""
        return sorted({uid for card in cards for uid in self.holders[card]})

    def zones_of(self, cards: Iterable[int]) -> int:
        """Return the zones that cards given by their flat position are near to, a bit each."""
        mask, rows = 0, self.card_rows
        for card in cards:
            mask |= rows.item(card, at.ZONES)
        return mask

    def workers(self, row: int) -> int:
        """Return allocations on a node."""
        return self.slots_total.item(row) - self.slots_free.item(row)

    def usage_of(self, allocation: Allocation) -> Usage:
        """Return what an allocation counts in the quota of its namespace; what its cards are charged.

        A dimension in which a card's capacity is not known counts nothing. A card that is missing counts as
        what it was when it was last known.
        """
        return usage_of(allocation, self.last_known(allocation))

    def last_known(self, allocation: Allocation) -> tuple[Gpu | None, ...]:
        """Return its cards in order, those that are missing as it remembers them; None for one that nobody knows."""
        try:
            return self.gpus(allocation.gpus)
        except KeyError:
            known = {gpu.uuid: gpu for gpu in allocation.cards}
            known |= {uuid: self.cards[self.card_of[uuid]] for uuid in allocation.gpus if uuid in self.card_of}
            return tuple(map(known.get, allocation.gpus))

    # --- changes ---

    def charge(self, allocation: Allocation, *, force: bool = False, cards: Sequence[int] | None = None) -> None:
        """Enter an allocation. `force` lets columns go negative: what is held is held.

        `cards` are the positions of its cards in these books, if the caller knows them.

        Raises:
            Conflict: the id is in the ledger; or, where `force` is not set, a card has no room for it, or
                its partition would lie where another one is.
            NotFound: a card is unknown. An unknown node is kept in the ledger and charges nothing.

        """
        self.check_new(allocation.id)
        if cards is None:
            cards = self._cards_of(allocation)
        if not force:
            self._check_room(allocation, cards)
        self._put(allocation.id, allocation, cards)

    def check_new(self, allocation_id: str) -> None:
        """Refuse an id that is in the ledger.

        Raises:
            Conflict: it is.

        """
        if allocation_id in self.ledger:
            raise Conflict(f"allocation {allocation_id} is already in the ledger", code="already-allocated")

    def enter(self, allocation: Allocation, row: int, cards: Sequence[int], usage: Usage | None = None) -> None:
        """Enter a new allocation on this node and these cards of it, for which columns and zones are charged.

        `usage` is what it counts in the quota of its namespace, if it has a claim.
        """
        if self._open:
            self._journal.append(Step(allocation.id, None))
        key, charges = allocation.id, allocation.charges
        for position, card in enumerate(cards):
            self.holders[card][key] = charges[position] if charges else None
        if allocation.requirement.gpu_count:
            self._sizes_changed(row, allocation.requirement, +1)
        if allocation.placement is not None:
            self.board.held += lies_beside_cards(allocation.placement)
        self._enter_claim(allocation, usage, +1)
        self.dirty.add(row)
        self.ledger[key] = allocation

    def release(self, allocation_id: str) -> Allocation:
        """Take an allocation out of the books and return it.

        Raises:
            NotFound: the ledger has no such id.

        """
        allocation = self.ledger.get(allocation_id)
        if allocation is None:
            raise NotFound(f"allocation {allocation_id} is not in the ledger")
        self._put(allocation_id, None)
        return allocation

    def replace(self, allocation: Allocation) -> None:
        """Put another version of an allocation in the place of the one with its id.

        Raises:
            NotFound: the ledger has no such id, or a card is unknown.

        """
        if allocation.id not in self.ledger:
            raise NotFound(f"allocation {allocation.id} is not in the ledger")
        self._put(allocation.id, allocation, self._cards_of(allocation))

    def _cards_of(self, allocation: Allocation) -> list[int]:
        """Return where its cards lie; none if its node is not known.

        Raises:
            NotFound: a card is unknown.

        """
        if allocation.node not in self.row_of:
            return []
        try:
            return [self.card_of[uuid] for uuid in allocation.gpus]
        except KeyError as missing:
            raise NotFound(f"card {missing} of allocation {allocation.id} is unknown", code="unknown-gpu") from None

    def _check_room(self, allocation: Allocation, cards: Sequence[int]) -> None:
        for position, card in enumerate(cards):
            users = self.holders[card]
            if allocation.charges:
                charge = allocation.charges[position]
                fits = charge.compute <= self.compute_free[card] and charge.vram <= self.vram_free[card]
                fits = fits and takes_part(self.profiles, self.cards[card], users.values(), charge)
            else:
                fits = not users
            if not fits:
                raise Conflict(f"a card of {allocation.id} is held by another", code="card-held")

    def _put(self, key: str, allocation: Allocation | None, cards: Sequence[int] = ()) -> None:
        """Have an allocation, which lies on these cards, in the ledger under its id, or none."""
        before = self.ledger.get(key)
        if self._open:
            self._journal.append(self._step(key, before, allocation))
        if allocation is not None and allocation.state is AllocationState.RELEASING:
            self.leaving.add(key)
        else:
            self.leaving.discard(key)
        if before is not None and allocation is not None and _charges(before) == _charges(allocation):
            self.dirty.update(map(self.card_row.item, cards))  # of another machine too, if a card was moved there
            self.ledger[key] = allocation
            return
        if before is not None:
            self._enter(before, self._cards_of(before), -1)
            del self.ledger[key]
        if allocation is not None:
            self._enter(allocation, cards, +1)
            self.ledger[key] = allocation

    def _enter(self, allocation: Allocation, cards: Sequence[int], sign: int) -> None:
        row = self.row_of.get(allocation.node)
        gpus = self.last_known(allocation) if row is None else self.at(cards)
        self._enter_claim(allocation, None if allocation.claim is None else usage_of(allocation, gpus), sign)
        if row is None:
            return
        self.dirty.add(row)
        self._hold(allocation, row, cards, sign)
        if allocation.placement is not None:
            self.board.hold(row, allocation.placement, sign)
        asked = allocation.requirement
        sizes = self._sizes_changed(row, asked, sign) if asked.gpu_count else 0
        books = self.node_rows, self.card_rows, self.card_row, self.card_usable, self.newest, self.clock
        cpu, memory = min(asked.cpu_milli, at.UNREACHABLE), min(asked.memory_bytes, at.UNREACHABLE)
        self.clock = charge_columns(*books, row, sign, cpu, memory, sizes, self._taken, len(cards))
        self.newest = row

    def _enter_claim(self, allocation: Allocation, usage: Usage | None, sign: int) -> None:
        """Enter whose it is, if it is a request's own."""
        if allocation.of_session:
            return
        self._requested = None
        self.claim_changes += 1
        claim = allocation.claim
        if claim is None or usage is None:
            return
        before = self.usage.get(claim.quota_name, Usage())
        after = before.plus(usage) if sign > 0 else before.minus(usage)
        if after.workers:
            self.usage[claim.quota_name] = after
        else:
            del self.usage[claim.quota_name]
        if claim.gang is not None:
            self._enter_gang(claim.gang.key, allocation.id, sign)

    def _enter_gang(self, key: str, uid: str, sign: int) -> None:
        members = self.gangs.setdefault(key, set())
        if sign > 0:
            members.add(uid)
        else:
            members.discard(uid)
            if not members:
                del self.gangs[key]

    def _sizes_changed(self, row: int, asked: ResourceRequirement, sign: int) -> int:
        """Count what runs on a node; the bit of its size if it is the first, or was the last, of that size."""
        size, sizes = min(asked.gpu_count, LARGEST_SIZE) if asked.whole else 0, self.sizes[row]
        before = sizes.get(size, 0)
        sizes[size] = after = before + sign
        return 0 if before and after else 1 << size

    def _hold(self, allocation: Allocation, row: int, cards: Sequence[int], sign: int) -> None:
        """Enter who holds its cards, and write what that means for their columns."""
        key, charges, here = allocation.id, allocation.charges, self.cards_on(row)
        if len(cards) > len(self._taken):
            self._taken = np.zeros((len(cards), TAKEN_COLUMNS), dtype=np.int64)
            self._write = _as_numbers(self._taken)
        write, place = self._write, 0
        for position, card in enumerate(cards):
            held, charge = self.holders[card], charges[position] if charges else None
            if sign > 0:
                held[key] = charge
            else:
                del held[key]
            if card not in here:
                self.dirty.add(self.card_row.item(card))  # it was moved to another machine
            write[place] = card
            write[place + 1], write[place + 2] = (-1, -1) if charge is None else (charge.compute, charge.vram)
            write[place + 3] = mode_of(charge) if sign > 0 else modes_of(held.values())
            place += TAKEN_COLUMNS

    def set_other_usage(self, node: str, has: OtherUsage) -> None:
        """Set what others use of a node. No trial may be open, because this is not undone."""
        before, row = self.other_usage.pop(node, OtherUsage()), self.row_of.get(node)
        has = OtherUsage(*(min(amount, _MOST_OTHER_USAGE) for amount in has))
        if has != OtherUsage():
            self.other_usage[node] = has
        if row is None or has == before:
            return
        self._requested = None
        cpu, memory, slots = map(sub, has, before)
        sign = 1 if min(cpu, memory, slots) >= 0 else -1  # with less of anything than before there is more room
        self.slots_total[row] -= slots
        self.slots_free[row] += sign - slots
        books = self.node_rows, self.card_rows, self.card_row, self.card_usable, self.newest, self.clock
        self.clock = charge_columns(*books, row, sign, sign * cpu, sign * memory, 0, self._taken, 0)
        self.newest = row

    def touched_since(self, clock: int) -> list[int]:
        """Return rows changed since `clock`, ascending; all since -1."""
        rows, row, columns = [], self.newest, self.node_rows
        while row >= 0 and columns.item(row, at.CHANGED) >= clock:
            rows.append(row)
            row = columns.item(row, at.BEFORE)
        return sorted(rows)

    # --- journal ---

    def checkpoint(self) -> int:
        """Start a trial; give the mark to `rollback` or `keep`."""
        self._open += 1
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """End a trial: columns and ledger are exactly as they were at the checkpoint."""
        undo, self._journal[mark:] = self._journal[mark:], []
        outer, self._open = self._open, 0
        for step in reversed(undo):
            self._put(step.key, step.before, () if step.before is None else self._cards_of(step.before))
            if step.row >= 0:
                self.contents.give_back(step.row, step.content)
        self._open = outer - 1

    def _step(self, key: str, before: Allocation | None, after: Allocation | None) -> Step:
        """Return the step from one version of an allocation to another, to be taken back by a rollback."""
        lies = before or after
        if lies is None or (after is not None and after.node != lies.node):
            return Step(key, before)
        row = self.row_of.get(lies.node, -1)
        return Step(key, before, row, self.contents.of_row(row) if row >= 0 else -1)

    def keep(self, mark: int) -> None:
        """End a trial and let its changes stand, within the enclosing trial if there is one."""
        self._open -= 1
        if not self._open:
            del self._journal[mark:]

    # --- copies ---

    def copy(self, *, apart: bool = False) -> Fleet:
        """Return books with the same content; those `apart` are for another thread, with emptied books of their own."""
        twin = object.__new__(Fleet)
        twin.__dict__.update(self.__dict__)
        twin.node_rows, twin.card_rows = self.node_rows.copy(), self.card_rows.copy()
        twin._name_columns()
        twin.board, twin._taken = self.board.copy(), self._taken.copy()
        twin._write = _as_numbers(twin._taken)
        twin.holders = [dict(held) for held in self.holders]
        twin.sizes = [dict(count) for count in self.sizes]
        twin.ledger, twin.usage, twin.dirty = dict(self.ledger), dict(self.usage), set()
        twin.other_usage, twin.leaving = dict(self.other_usage), set(self.leaving)
        twin.gangs = {key: set(members) for key, members in self.gangs.items()}
        twin.tables, twin.strategies, twin._journal, twin._open = {}, {}, [], 0
        twin.contents = self.contents.copy(twin.node_rows)
        if apart:
            twin._empty, twin._shares = self._empty and self._empty.copy(), {}
            twin._opened = twin._requested = None
        return twin

    def rebuilt(self, nodes: Iterable[Node], allocations: Iterable[Allocation] = ()) -> Fleet:
        """Books of other machines, or of others who hold something of them, by the same rules."""
        books = Fleet(nodes, allocations, profiles=self.profiles, zone_rules=self.board.rules)
        for node, has in self.other_usage.items():
            books.set_other_usage(node, has)
        return books

    def emptied(self) -> Fleet:
        """Return the same inventory with nothing allocated; one for all callers, who work on it in a trial."""
        if self._empty is None:
            self._empty = Fleet(self.nodes, profiles=self.profiles, zone_rules=self.board.rules)
        return self._empty

    def opened(self) -> Fleet:
        """Return the same inventory with nothing allocated and every node open to new work; one for all callers."""
        if self._opened is None:
            nodes = [replace(node, state=NodeState.READY, cordoned=False) for node in self.nodes]
            self._opened = Fleet(nodes, profiles=self.profiles, zone_rules=self.board.rules)
        return self._opened

    def requested(self) -> Fleet:
        """Return the same inventory with only what requests and strangers hold: what is left there, sessions share."""
        held = [allocation for allocation in self.ledger.values() if not allocation.of_session]
        if not held:
            return self.emptied()
        if self._requested is None:
            self._requested = self.rebuilt(self.nodes, held)
        return self._requested


def age_of(allocation: Allocation) -> float | None:
    """Return when an allocation was assumed, or else bound: it says where a partition lies whose place is not recorded.

    In seconds since the epoch.
    """
    return allocation.bound_at if allocation.assumed_at is None else allocation.assumed_at


def _as_numbers(rows: at.Rows) -> memoryview:
    """Return the same numbers in a row, for writing one by one: much faster than in the array."""
    return memoryview(rows.data).cast("B").cast("q")


def _charges(allocation: Allocation) -> tuple[object, ...]:
    """Return all that the columns know of an allocation; what else it says may change without them."""
    mixed = [charge.mixed for charge in allocation.charges]
    held = allocation.node, allocation.gpus, allocation.charges, mixed, allocation.cards, allocation.placement
    return *held, allocation.requirement, allocation.claim, age_of(allocation)
