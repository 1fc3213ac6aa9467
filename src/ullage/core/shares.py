"""Dominant resource fairness over a tree of queues, by progressive filling.

Source of the rule: Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011); for the tree,
Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter Workloads" (SoCC 2013).

The next unit always goes to the child with the smallest dominant share, from the root down, and
shares are updated after every unit. All arithmetic is on integers, so no order of input matters: a
share is scaled by the least common multiple of all totals and weights, which makes it exact.

A child that cannot get more because capacity ran out counts in its parent at most at the level of
its siblings that still can; what it counts is cut to that level rounded down, to whole units of each
dimension. Otherwise a queue whose one session took the only GPU (share 100 %) would starve its other
sessions of the cpus that nobody else has taken yet (SoCC 2013, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import lcm

from ullage.core.fleet import Holding
from ullage.core.policy import Order
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources

Vector = tuple[int, int, int]
_ZERO: Vector = (0, 0, 0)
_UNLIMITED = 2**200
SATURATED = frozenset(
    {Code.CPU, Code.MEMORY, Code.GPU, Code.SLOTS, Code.NO_NODES, Code.GANG_ROOM, Code.RESERVED, Code.RECLAIMING}
)
"""Stops that mean capacity ran out, as opposed to demand met or a limit reached."""


@dataclass(slots=True)
class Leaf:
    """A session in the tree: it takes units of `unit` until it holds `target` of them.

    Leaves of equal `shape` fit the same places. Units that are `leaving` count against limits, for they
    are not gone yet, and not as a share, for they are given up.
    """

    session: str
    queue: str
    unit: Vector
    priority: int = 0
    weight: int = 1
    number: int = 0
    held: int = 0
    leaving: int = 0
    target: int = 0
    floor: int = 0
    application: str = ""
    executors_per_unit: int = 1
    shape: Hashable = None
    stopped: Code | None = None


@dataclass(slots=True)
class _Group:
    """A queue while it is being filled. `counted` is what it weighs in its parent."""

    name: str
    parent: _Group | None
    weight: int
    guarantee: Vector
    limit: Vector
    usage: Vector = _ZERO
    charged: Vector = _ZERO
    contributed: Vector = _ZERO
    counted: Vector = _ZERO
    capped: dict[tuple[int, Vector], int] = field(default_factory=dict)
    heap: list[tuple[int, int, int, str, Leaf | _Group]] = field(default_factory=list)
    saturated: bool = False


Grant = Callable[[Leaf], Code | None]
"""Tries to place one unit of a leaf: None if it was placed, else why not."""

Beyond = Callable[[Leaf, Code], Code | None]
"""What to do for a leaf that a limit stops: None if a unit was promised to it all the same."""

Fits = Callable[[Leaf], bool]
"""Whether one more unit of a leaf would find room."""


class ShareTree:
    """Queues with the usage of their sessions, ready to be filled."""

    def __init__(
        self,
        total: Resources,
        queues: Iterable[Queue],
        leaves: Iterable[Leaf],
        order: Order = Order.DRF,
        application_limits: Mapping[str, int] | None = None,
    ) -> None:
        self.leaves = sorted(leaves, key=lambda leaf: (leaf.number, leaf.session))
        self._order = order
        queues = sorted(queues, key=lambda queue: queue.name)
        weights = lcm(1, *(leaf.weight for leaf in self.leaves), *(queue.weight for queue in queues))
        common = lcm(*(amount for amount in total if amount > 0), 1)
        self._scales = tuple(common // amount * weights if amount > 0 else 0 for amount in total)
        self._beyond = common * weights << 64
        self._groups = self._build(queues)
        self._application_left = dict(application_limits or {})
        self._application_leaving: dict[str, int] = {}
        for leaf in self.leaves:
            self._note_leaving(leaf, leaf.leaving)
            self._add(leaf, leaf.held)
            self._charge(leaf, leaf.held + leaf.leaving)

    def _build(self, queues: list[Queue]) -> dict[str, _Group]:
        groups = {ROOT: _Group(ROOT, None, 1, _ZERO, (_UNLIMITED,) * 3)}
        waiting = {queue.name: queue for queue in queues}
        while waiting:
            ready = [queue for queue in waiting.values() if queue.parent in groups]
            assert ready, "queues were checked to form a tree"
            for queue in ready:
                limits = (queue.limit.cpu_milli, queue.limit.memory_bytes, queue.limit.gpu_milli)
                limit = _vector(_UNLIMITED if amount is None else amount for amount in limits)
                guarantee = _vector(queue.guarantee)
                groups[queue.name] = _Group(queue.name, groups[queue.parent], queue.weight, guarantee, limit)
                del waiting[queue.name]
        return groups

    # --- shares ---

    def share(self, usage: Vector, weight: int) -> int:
        """Dominant share of `usage` divided by `weight`, as an exact scaled integer.

        A dimension the fleet does not have is skipped while nothing is held in it; with something
        held the share is beyond every other.
        """
        largest = 0
        for amount, scale in zip(usage, self._scales, strict=True):
            if amount:
                if not scale:
                    return self._beyond
                largest = max(largest, amount * scale)
        return largest // weight

    def leaf_share(self, leaf: Leaf, held: int | None = None) -> int:
        """Dominant share of a session with `held` units (now held if None)."""
        return self.share(_times(leaf.unit, leaf.held if held is None else held), leaf.weight)

    def usage(self, queue: str) -> Vector:
        """What the sessions below a queue hold."""
        return self._groups[queue].usage

    def lose(self, queue: str, amount: Vector, losses: dict[str, Vector]) -> bool:
        """Add a loss to those of one claim, unless the queue or one above it would fall below its guarantee.

        `losses` holds, by queue, what the claim takes so far. False: nothing was added.
        """
        line: list[_Group] = []
        group: _Group | None = self._groups[queue]
        while group is not None:
            lost = _plus(losses.get(group.name, _ZERO), amount)
            left = (a - b for a, b in zip(group.usage, lost, strict=True))
            if any(loss and a < g for a, g, loss in zip(left, group.guarantee, amount, strict=True)):
                return False
            line.append(group)
            group = group.parent
        for group in line:
            losses[group.name] = _plus(losses.get(group.name, _ZERO), amount)
        return True

    # --- filling ---

    def fill_floors(self, grant: Grant, beyond: Beyond | None = None) -> None:
        """Give every session its minimum, by priority, then creation."""
        for leaf in sorted(self.leaves, key=lambda leaf: (-leaf.priority, leaf.number, leaf.session)):
            while leaf.held < min(leaf.floor, leaf.target) and self.give(leaf, grant, beyond) is None:
                pass

    def fill_guarantees(self, grant: Grant, fits: Fits | None = None, beyond: Beyond | None = None) -> None:
        """Fill what fits inside the guarantee of its queue or of one above it."""
        if any(any(group.guarantee) for group in self._groups.values()):
            self._fill(grant, fits, beyond, self._within_guarantee)

    def fill(self, grant: Grant, fits: Fits | None = None, beyond: Beyond | None = None) -> None:
        """Fill until every session has its target, met a limit, or fits nowhere.

        With `fits`, sessions that ran out of room are known at once, not when their turn comes.
        """
        self._fill(grant, fits, beyond, lambda _leaf: True)

    def _fill(self, grant: Grant, fits: Fits | None, beyond: Beyond | None, eligible: Callable[[Leaf], bool]) -> None:
        competing = {leaf.queue for leaf in self.leaves if leaf.held < leaf.target}
        shapes = {leaf.shape: leaf for leaf in self.leaves if leaf.held < leaf.target}
        if fits is None or len(competing) == 1:
            shapes = {}  # inside one queue it is enough to find out when the turn comes
        self._enter_children(eligible)
        root = self._groups[ROOT]
        while root.heap:
            if fits is not None and (full := [shape for shape, leaf in shapes.items() if not fits(leaf)]):
                for shape in full:
                    del shapes[shape]
                self._saturate(set(full), grant)
                self._enter_children(eligible)
                continue
            path = [root]
            child = heappop(root.heap)[-1]
            while isinstance(child, _Group):
                path.append(child)
                child = heappop(child.heap)[-1]
            stopped = self.give(child, grant, beyond) if eligible(child) else Code.SHARE
            if stopped is None and child.held < child.target:
                self._push_leaf(path[-1], child)
            elif stopped in SATURATED:
                self._cap(path[-1], self.leaf_share(child), _times(child.unit, child.held))
            self._climb(path)

    def _saturate(self, shapes: set[Hashable], grant: Grant) -> None:
        """Stop every session of these shapes: there is no room for them."""
        for leaf in self.leaves:
            if leaf.shape in shapes and leaf.held < leaf.target and leaf.stopped is None:
                leaf.stopped = self.over_limit(leaf) or grant(leaf)
                assert leaf.stopped is not None, "what does not fit cannot be placed"

    def _enter_children(self, eligible: Callable[[Leaf], bool]) -> None:
        for group in self._groups.values():
            group.heap.clear()
            group.capped.clear()
            group.saturated = False
        for leaf in self.leaves:
            if leaf.held < leaf.target and leaf.stopped is None and eligible(leaf):
                self._groups[leaf.queue].heap.append(self._leaf_key(leaf))
            elif leaf.stopped in SATURATED and leaf.held:
                self._cap(self._groups[leaf.queue], self.leaf_share(leaf), _times(leaf.unit, leaf.held))
        for group in self._groups.values():
            heapify(group.heap)
        for group in reversed(self._groups.values()):  # children stand after their parents
            if group.parent is not None:
                self._recount(group)
                if group.heap:
                    heappush(group.parent.heap, self._group_key(group))
                elif group.saturated:
                    self._cap(group.parent, self.share(group.counted, group.weight), group.counted)

    def give(self, leaf: Leaf, grant: Grant, beyond: Beyond | None = None) -> Code | None:
        """Try one unit of one session; the code says what stopped it."""
        limit = self.over_limit(leaf)
        if limit is None:
            leaf.stopped = grant(leaf)
        else:
            leaf.stopped = limit if beyond is None else beyond(leaf, limit)
        if leaf.stopped is None:
            leaf.held += 1
            self._add(leaf, 1)
            self._charge(leaf, 1)
        return leaf.stopped

    def take(self, leaf: Leaf, units: int) -> None:
        """Units of a session begin to leave."""
        leaf.held -= units
        leaf.leaving += units
        self._note_leaving(leaf, units)
        self._add(leaf, -units)

    def over_limit(self, leaf: Leaf, *, leaving: bool = True) -> Code | None:
        """The limit that one more unit would break; with `leaving` units that are not gone yet count."""
        left = self._application_left.get(leaf.application)
        if left is not None and not leaving:
            left += self._application_leaving.get(leaf.application, 0)
        if left is not None and left < leaf.executors_per_unit:
            return Code.APPLICATION_LIMIT
        group: _Group | None = self._groups[leaf.queue]
        while group is not None:
            counted = group.charged if leaving else group.usage
            if any(u + a > most for u, a, most in zip(counted, leaf.unit, group.limit, strict=True)):
                return Code.QUEUE_LIMIT
            group = group.parent
        return None

    def _within_guarantee(self, leaf: Leaf) -> bool:
        group: _Group | None = self._groups[leaf.queue]
        while group is not None:
            named = [(u, a, g) for u, a, g in zip(group.usage, leaf.unit, group.guarantee, strict=True) if g]
            if any(a for _, a, _ in named) and all(u + a <= g for u, a, g in named):
                return True
            group = group.parent
        return False

    def _add(self, leaf: Leaf, units: int) -> None:
        amount = _times(leaf.unit, units)
        group: _Group | None = self._groups[leaf.queue]
        assert group is not None
        group.contributed = _plus(group.contributed, amount)
        while group is not None:
            group.usage = _plus(group.usage, amount)
            group = group.parent

    def _note_leaving(self, leaf: Leaf, units: int) -> None:
        leaving = self._application_leaving.get(leaf.application, 0)
        self._application_leaving[leaf.application] = leaving + units * leaf.executors_per_unit

    def within(self, leaf: Leaf, code: Code) -> Callable[[Leaf], bool]:
        """Which leaves share the limit that stops this one."""
        if code is Code.APPLICATION_LIMIT:
            return lambda other: other.application == leaf.application
        group: _Group | None = self._groups[leaf.queue]
        while group is not None and all(
            u + a <= most for u, a, most in zip(group.usage, leaf.unit, group.limit, strict=True)
        ):
            group = group.parent
        name = ROOT if group is None else group.name
        return lambda other: name in self._line(other)

    def _line(self, leaf: Leaf) -> Iterator[str]:
        group: _Group | None = self._groups[leaf.queue]
        while group is not None:
            yield group.name
            group = group.parent

    def _charge(self, leaf: Leaf, units: int) -> None:
        if leaf.application in self._application_left:
            self._application_left[leaf.application] -= units * leaf.executors_per_unit
        group: _Group | None = self._groups[leaf.queue]
        while group is not None:
            group.charged = _plus(group.charged, _times(leaf.unit, units))
            group = group.parent

    # --- keys ---

    def _leaf_key(self, leaf: Leaf) -> tuple[int, int, int, str, Leaf | _Group]:
        share = 0 if self._order is Order.FIFO else self.leaf_share(leaf)
        return (-leaf.priority, share, leaf.number, leaf.session, leaf)

    def _group_key(self, group: _Group) -> tuple[int, int, int, str, Leaf | _Group]:
        oldest = group.heap[0][2]  # at a tie the queue whose next session is older goes first
        return (0, self.share(group.counted, group.weight), oldest, group.name, group)

    def _level(self, child: Leaf | _Group) -> int:
        return self.leaf_share(child) if isinstance(child, Leaf) else self.share(child.counted, child.weight)

    def _push_leaf(self, group: _Group, leaf: Leaf) -> None:
        heappush(group.heap, self._leaf_key(leaf))

    def _climb(self, path: list[_Group]) -> None:
        """Bring the queues of a path up to date, from the leaf up, and back into their parents."""
        for group in reversed(path[1:]):
            parent = group.parent
            assert parent is not None
            self._recount(group)
            if group.heap:
                heappush(parent.heap, self._group_key(group))
            elif group.saturated:
                self._cap(parent, self.share(group.counted, group.weight), group.counted)

    def _cap(self, group: _Group, share: int, amount: Vector) -> None:
        group.saturated = True
        group.capped[share, amount] = group.capped.get((share, amount), 0) + 1

    def _recount(self, group: _Group) -> None:
        """What the queue weighs: saturated children at most at the level of those that can grow."""
        counted = group.contributed
        if group.heap and group.capped:
            level = self._level(group.heap[0][-1])
            for (share, amount), times in group.capped.items():
                if share > level:
                    counted = _plus(counted, _vector(times * (level * a // share - a) for a in amount))
        if counted != group.counted:
            assert group.parent is not None
            change = _plus(counted, _times(group.counted, -1))
            group.parent.contributed = _plus(group.parent.contributed, change)
            group.counted = counted


def _vector(amounts: Iterable[int]) -> Vector:
    cpu, memory, gpu = amounts
    return (cpu, memory, gpu)


def _plus(a: Vector, b: Vector) -> Vector:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _times(a: Vector, n: int) -> Vector:
    return (a[0] * n, a[1] * n, a[2] * n)


def dominant_share(usage: Holding | Resources, total: Resources) -> float:
    """The largest used/total over dimensions, for display; a dimension that does not exist counts as none."""
    pairs: tuple[tuple[int | Fraction, int], ...] = (
        (usage.cpu_milli, total.cpu_milli),
        (usage.memory_bytes, total.memory_bytes),
        (usage.gpu_milli, total.gpu_milli),
    )
    return float(max((Fraction(used) / whole for used, whole in pairs if whole), default=0))
