"""Dominant resource fairness over a tree of queues, by progressive filling.

Source of the rule: Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011); for the tree,
Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter Workloads" (SoCC 2013).

The next unit always goes to the child with the smallest dominant share, from the root down, and shares are updated
after each unit. All arithmetic is on integers and exact, so the order of the input does not matter.
`kernel/queues.py` has the tree as columns and `kernel/filling.py` the rule; here Python calls them.

A child that cannot grow because capacity ran out counts in its parent at most at the level of its siblings that can.
Its amounts are cut to that level, rounded down. Otherwise a queue whose one session took the only GPU (share 100 %)
would starve its other sessions of CPUs that nobody uses (SoCC 2013, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TypedDict, Unpack

import numpy as np

from ullage.core.books.usage import CardHolding
from ullage.core.kernel import queues as at
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.filling import ASKS_BEYOND, FILLING, GUARANTEED, SAME_SHAPE
from ullage.core.placing.policy import Order
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources

Vector = tuple[int, int, int]
_ZERO: Vector = (0, 0, 0)
SATURATED = frozenset(
    {Code.CPU, Code.MEMORY, Code.GPU, Code.SLOTS, Code.NO_NODES, Code.GANG_ROOM, Code.RESERVED, Code.RECLAIMING}
    | {Code.NOT_ALIGNED, Code.SHORT_ALLOCATION, Code.BROKEN_CORES, Code.NOT_LINKED, Code.OFF_SWITCH}
)
"""Reasons that mean missing capacity, as opposed to met demand or a limit."""

_LIMITS = (None, Code.SHARE, Code.QUEUE_LIMIT, Code.APPLICATION_LIMIT)
_CODES = (*_LIMITS, *(code for code in Code if code not in {*_LIMITS, *SATURATED}), *sorted(SATURATED))
"""The reasons by the numbers of `kernel/queues.py`, those below 0 from the end."""
_NUMBERS = {code: number if code not in SATURATED else number - len(_CODES) for number, code in enumerate(_CODES)}


class LeafStart(TypedDict, total=False):
    """What a leaf starts with, besides its queue and its unit. Counts are in units.

    `number` is its order of creation. Leaves of equal `shape` fit the same places. Units that are `leaving` count
    against limits, because they are not gone yet, and not as a share, because they are given up. Of a leaf that is
    `apart` each unit is a session of its own that wants no more: it counts in the queue only, and the target falls.
    """

    priority: int
    weight: int
    number: int
    held: int
    leaving: int
    target: int
    floor: int
    application: str
    executors_per_unit: int
    shape: Hashable
    apart: bool


class Leaf:
    """A session in the tree: it takes units of `unit` until it holds `target` of them."""

    __slots__ = ("application", "place", "queue", "row", "session", "shape", "start", "unit")

    def __init__(self, session: str, queue: str, unit: Vector, **start: Unpack[LeafStart]) -> None:
        self.session, self.queue, self.unit = session, queue, unit
        self.application, self.shape = start.get("application", ""), start.get("shape")
        order = (
            start.get("priority", 0),
            start.get("number", 0),
            start.get("floor", 0),
            start.get("executors_per_unit", 1),
        )
        counts = int(start.get("apart", False)), start.get("target", 0), start.get("held", 0), start.get("leaving", 0)
        self.start = (0, start.get("weight", 1), *(0,) * (at.UNIT - at.RANK), *unit, *order, 0, 0, *counts)
        """The row that it starts with, up to the units that are leaving."""
        self.place: int
        self.row: Rows
        """Its row in its tree (`kernel/queues.py`)."""

    @property
    def number(self) -> int:
        """Its order of creation."""
        return int(self.row[at.NUMBER])

    @number.setter
    def number(self, number: int) -> None:
        self.row[at.NUMBER] = number

    @property
    def held(self) -> int:
        """The units that it holds."""
        return int(self.row[at.HELD])

    @property
    def leaving(self) -> int:
        return int(self.row[at.LEAVING])

    @property
    def target(self) -> int:
        """The units that it takes at most."""
        return int(self.row[at.TARGET])

    @target.setter
    def target(self, units: int) -> None:
        self.row[at.TARGET] = units

    @property
    def stopped(self) -> Code | None:
        """Why it did not get the last unit; None if it did."""
        return _CODES[int(self.row[at.STOPPED])]


Grant = Callable[[Leaf], Code | None]
"""Place one unit of a leaf. Return None if it was placed, else why not."""

Beyond = Callable[[Leaf, Code], Code | None]
"""Handle a leaf that a limit stops. Return None if a unit was promised to it nevertheless, else why not."""

Fits = Callable[[Leaf], bool]
"""Return whether one more unit of a leaf would find room."""


class ShareTree:
    """Queues with the usage of their sessions, ready to be filled.

    With `same_shape`, a `grant` treats leaves of one shape equally: once one of them found no room, it is not called
    for the others.
    """

    def __init__(
        self,
        total: Resources,
        queues: Iterable[Queue],
        leaves: Iterable[Leaf],
        order: Order = Order.DRF,
        application_limits: Mapping[str, int] | None = None,
    ) -> None:
        self.leaves = sorted(leaves, key=lambda leaf: (leaf.start[at.NUMBER], leaf.session))
        self._total = total
        self._queues = _parents_first(queues)
        self._parents = {queue.name: queue.parent for queue in self._queues}
        names = (ROOT, *(queue.name for queue in self._queues))
        self._row_of = {name: row for row, name in enumerate(names, len(self.leaves))}
        limits = application_limits or {}
        applications = {name: number for number, name in enumerate({leaf.application: None for leaf in self.leaves})}
        shapes = {shape: number for number, shape in enumerate({leaf.shape: None for leaf in self.leaves})}
        self._shapes = shapes
        self.columns = at.empty_tree(len(self.leaves), len(self._row_of), len(applications), len(shapes))
        """Rows, heaps and facts, as `kernel/queues.py` has them."""
        self._rows, _, self._facts = self.columns
        self._rule = FILLING
        self._facts[at.TOTAL : at.TOTAL + at.DIMENSIONS] = [min(amount, at.MOST) for amount in total]
        self._facts[at.BY_AGE] = order is Order.FIFO
        for name in limits.keys() & applications.keys():
            place = self._facts[at.APPLICATIONS] + 2 * applications[name] + at.LEFT
            self._facts[place] = min(limits[name], at.UNLIMITED)
        self._enter_leaves(applications)
        self._enter_queues()
        self._rule.enter_leaves(*self.columns)
        self._unit_shares: dict[int, tuple[int, bool]] = {}

    def _enter_leaves(self, applications: Mapping[str, int]) -> None:
        leaves, rows = self.leaves, self._rows[: len(self.leaves)]
        if leaves:
            rows[:, : len(leaves[0].start)] = [leaf.start for leaf in leaves]
        rows[:, at.PARENT] = [self._row_of[leaf.queue] for leaf in leaves]
        rows[:, at.APPLICATION] = [applications[leaf.application] for leaf in leaves]
        rows[:, at.SHAPE] = [self._shapes[leaf.shape] for leaf in leaves]
        for place, (leaf, row) in enumerate(zip(leaves, rows, strict=True)):
            leaf.place, leaf.row = place, row

    def _enter_queues(self) -> None:
        rows = self._rows[len(self.leaves) :]
        rows[0, at.PARENT], rows[0, at.WEIGHT] = -1, 1
        for row, queue in zip(rows[1:], self._queues, strict=True):
            row[at.PARENT], row[at.WEIGHT] = self._row_of[queue.parent], queue.weight
            row[at.GUARANTEE : at.GUARANTEE + at.DIMENSIONS] = [min(amount, at.MOST) for amount in queue.guarantee]
            limits = (queue.limit.cpu_milli, queue.limit.memory_bytes, queue.limit.gpu_milli)
            for dimension, limit in enumerate(limits):
                if limit is not None:
                    row[at.LIMIT + dimension] = min(limit, at.UNLIMITED)
        names = [*(leaf.session for leaf in self.leaves), *self._row_of]
        ranks = {name: rank for rank, name in enumerate(sorted(set(names)))}
        self._rows[:, at.RANK] = [ranks[name] for name in names]
        children = np.bincount(self._rows[self._rows[:, at.PARENT] >= 0, at.PARENT], minlength=len(self._rows))
        rows[:, at.FIRST] = (np.cumsum(children) - children)[len(self.leaves) :]

    # --- shares ---

    @cached_property
    def _scales(self) -> tuple[int, list[int]]:
        """The factors that make shares integers: a common multiple of all totals and weights, and one per dimension."""
        weights = lcm(*self._rows[:, at.WEIGHT].tolist())
        common = lcm(1, *(amount for amount in self._total if amount > 0))
        return common * weights, [common // amount * weights if amount > 0 else 0 for amount in self._total]

    def leaf_share(self, leaf: Leaf, held: int | None = None) -> int:
        """Return the dominant share of a session with `held` units (those held now if None), as a scaled integer.

        A dimension that the fleet does not have is skipped while nothing of it is held. If something is held, the
        share is larger than every other.
        """
        units, share = leaf.held if held is None else held, self._unit_shares.get(leaf.place)
        if share is None:
            share = self._unit_shares[leaf.place] = self._unit_share(leaf)
        one, beyond = share
        if beyond:
            return one if units else 0
        return one * units if units > 0 else 0

    def _unit_share(self, leaf: Leaf) -> tuple[int, bool]:
        """Return the share of one unit, and whether it is larger than every other share."""
        whole, scales = self._scales
        asked = [(amount, scale) for amount, scale in zip(leaf.unit, scales, strict=True) if amount]
        if not all(scale for _, scale in asked):
            return whole << 64, True
        return max((amount * scale for amount, scale in asked), default=0) // int(leaf.row[at.WEIGHT]), False

    def executors(self) -> dict[str, int]:
        """Return what every session holds, in executors."""
        rows = self._rows[: len(self.leaves)]
        held = (rows[:, at.HELD] * rows[:, at.EXECUTORS]).tolist()
        return {leaf.session: executors for leaf, executors in zip(self.leaves, held, strict=True)}

    def usage(self, queue: str) -> Vector:
        """Return what the sessions below a queue hold."""
        return self._amounts(self._row_of[queue], at.USAGE)

    def _amounts(self, group: int, column: int) -> Vector:
        cpu, memory, gpu = self._rows[group, column : column + at.DIMENSIONS].tolist()
        return (cpu, memory, gpu)

    def lose(self, queue: str, amount: Vector, losses: dict[str, Vector]) -> bool:
        """Add a loss to those of one claim. Return False, and add nothing, if a queue would fall below its guarantee.

        `losses` holds, by queue, what the claim takes so far.
        """
        line = dict.fromkeys(self._line(queue), _ZERO)
        for name in line:
            group = self._row_of[name]
            line[name] = lost = _plus(losses.get(name, _ZERO), amount)
            held, guarantee = self._amounts(group, at.USAGE), self._amounts(group, at.GUARANTEE)
            if any(loss and u - a < g for u, a, g, loss in zip(held, lost, guarantee, amount, strict=True)):
                return False
        losses.update(line)
        return True

    # --- filling ---

    def fill_floors(self, grant: Grant, beyond: Beyond | None = None, *, same_shape: bool = False) -> None:
        """Give each session its minimum, by priority, then creation."""
        rows = self._rows[: len(self.leaves)]
        short = np.flatnonzero(rows[:, at.HELD] < np.minimum(rows[:, at.FLOOR], rows[:, at.TARGET]))
        for place in sorted(short.tolist(), key=lambda place: -int(rows[place, at.PRIORITY])):
            leaf = self.leaves[place]
            while leaf.held < min(rows[place, at.FLOOR], leaf.target) and not self.give(
                leaf, grant, beyond, same_shape=same_shape
            ):
                pass

    def fill_guarantees(
        self, grant: Grant, fits: Fits | None = None, beyond: Beyond | None = None, *, same_shape: bool = False
    ) -> None:
        """Fill what is within the guarantee of its queue or of one above it."""
        if self._rows[len(self.leaves) :, at.GUARANTEE : at.GUARANTEE + at.DIMENSIONS].any():
            self._fill(grant, fits, beyond, GUARANTEED | SAME_SHAPE * same_shape)

    def fill(
        self, grant: Grant, fits: Fits | None = None, beyond: Beyond | None = None, *, same_shape: bool = False
    ) -> None:
        """Fill until each session has its target, met a limit, or fits nowhere.

        With `fits`, a session without room is found immediately, not when it would be served.
        """
        self._fill(grant, fits, beyond, SAME_SHAPE * same_shape)

    def _fill(self, grant: Grant, fits: Fits | None, beyond: Beyond | None, mode: int) -> None:
        mode |= ASKS_BEYOND if beyond is not None else 0
        watched = {} if fits is None else self._competing()
        place, limit = self._rule.begin(*self.columns, mode)
        while place >= 0:
            if fits is not None and (full := [leaf for leaf in watched.values() if not fits(leaf)]):
                for leaf in full:
                    del watched[leaf.shape]
                    stopped = grant(leaf)
                    assert stopped is not None, "what does not fit cannot be placed"
                    self.note_full([leaf.shape], stopped)
                place, limit = self._rule.begin(*self.columns, mode)
                continue
            leaf = self.leaves[place]
            code = _LIMITS[limit]
            stopped = grant(leaf) if code is None or beyond is None else beyond(leaf, code)
            place, limit = self._rule.serve(*self.columns, place, _NUMBERS[stopped], mode)

    def _competing(self) -> dict[Hashable, Leaf]:
        """Return a leaf of each shape that wants more, if queues compete; within one queue the order finds them."""
        rows = self._rows[: len(self.leaves)]
        wanting = np.flatnonzero(rows[:, at.HELD] < rows[:, at.TARGET])
        if len(set(rows[wanting, at.PARENT].tolist())) == 1:
            return {}
        return {self.leaves[place].shape: self.leaves[place] for place in wanting.tolist()}

    def give(self, leaf: Leaf, grant: Grant, beyond: Beyond | None = None, *, same_shape: bool = False) -> Code | None:
        """Try to place one unit of a session. Return what stopped it, or None."""
        stopped = self.over_limit(leaf)
        if stopped is None:
            stopped = _CODES[self._facts[at.FULL + leaf.row[at.SHAPE]]] or grant(leaf)
        elif beyond is not None:
            stopped = beyond(leaf, stopped)
        self._rule.record(*self.columns, leaf.place, _NUMBERS[stopped], SAME_SHAPE * same_shape)
        return stopped

    def renew(self) -> None:
        """Forget what stopped sessions, and which shapes are full."""
        self._rows[: len(self.leaves), at.STOPPED] = 0
        self._facts[at.FULL : self._facts[at.APPLICATIONS]] = 0

    def note_full(self, shapes: Iterable[Hashable], code: Code) -> None:
        for shape in shapes:
            self._facts[at.FULL + self._shapes[shape]] = _NUMBERS[code]

    def take(self, leaf: Leaf, units: int) -> None:
        """Let units of a session begin to leave."""
        self._rule.leave(*self.columns, leaf.place, units)

    def free(self, leaf: Leaf) -> None:
        """Free a unit of a leaf that is apart."""
        self._rule.free(*self.columns, leaf.place, 1)

    def over_limit(self, leaf: Leaf, *, leaving: bool = True) -> Code | None:
        """Return the limit that one more unit would break; with `leaving` units that are leaving count."""
        return _LIMITS[self._rule.limit_of(*self.columns, leaf.place, leaving)]

    def within(self, leaf: Leaf, code: Code) -> Callable[[Leaf], bool]:
        """Return a test for the leaves that share the limit that stops this one."""
        if code is Code.APPLICATION_LIMIT:
            return lambda other: other.application == leaf.application
        name = next((name for name in self._line(leaf.queue) if self._stops(name, leaf)), ROOT)
        return lambda other: name in self._line(other.queue)

    def _stops(self, queue: str, leaf: Leaf) -> bool:
        held, most = (self._amounts(self._row_of[queue], column) for column in (at.USAGE, at.LIMIT))
        return any(u + a > limit for u, a, limit in zip(held, leaf.unit, most, strict=True))

    def _line(self, queue: str) -> Iterator[str]:
        """Yield a queue and those above it."""
        while queue != ROOT:
            yield queue
            queue = self._parents[queue]
        yield ROOT


def warm() -> None:
    """Compile the rule, or load it from the cache."""
    leaf = Leaf("warm", ROOT, (1, 0, 0), target=2)
    tree = ShareTree(Resources(cpu_milli=2), (), [leaf])
    tree.give(leaf, lambda _leaf: None)
    tree.fill(lambda _leaf: None)
    tree.take(leaf, 1)


def _parents_first(queues: Iterable[Queue]) -> list[Queue]:
    """Return the queues by name, each after its parent."""
    known, found = {ROOT}, list[Queue]()
    waiting = sorted(queues, key=lambda queue: queue.name)
    while waiting:
        ready = [queue for queue in waiting if queue.parent in known]
        assert ready, "queues were checked to form a tree"
        found += ready
        known.update(queue.name for queue in ready)
        waiting = [queue for queue in waiting if queue.name not in known]
    return found


def _plus(a: Vector, b: Vector) -> Vector:
    (cpu, memory, gpu), (more_cpu, more_memory, more_gpu) = a, b
    return cpu + more_cpu, memory + more_memory, gpu + more_gpu


def dominant_share(usage: CardHolding | Resources, total: Resources) -> float:
    """Return the largest used/total over dimensions, for display; a dimension that does not exist is left out."""
    pairs: tuple[tuple[int | Fraction, int], ...] = (
        (usage.cpu_milli, total.cpu_milli),
        (usage.memory_bytes, total.memory_bytes),
        (usage.gpu_milli, total.gpu_milli),
    )
    return max((float(used / whole) for used, whole in pairs if whole), default=0.0)
