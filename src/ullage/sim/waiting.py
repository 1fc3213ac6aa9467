"""Waiting tasks in the order of the scheduler's own share tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ullage.core.placing.policy import Order
from ullage.core.sharing.shares import Leaf, ShareTree, Vector, dominant_share
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources


class Turn(StrEnum):
    """The order of waiting tasks: by arrival, by priority, or by the dominant share of their queue."""

    FIFO = "fifo"
    PRIORITY = "priority"
    DRF = "drf"


class Group(NamedTuple):
    """Equivalent tasks: if one fits, all do. They are tried in order of arrival."""

    queue: str
    priority: int
    shape: int
    units: int

    @property
    def key(self) -> tuple[int, int]:
        """The shape and units, which decide whether a task fits."""
        return self.shape, self.units


class Waiting:
    """Waiting tasks by number, which grows with arrival, and the resources of each queue.

    Every task is a session with one unit. Under DRF the share tree has the queues of the trace; under the other turns
    it has one queue, and under FIFO one priority. A task that did not fit is tried again only after another one ends.
    It does not block other tasks.

    `groups` has the resources of a task of each group, `shapes` the requirement of each shape. A queue that is not in
    `queues` has weight 1 and no parent.
    """

    def __init__(
        self,
        turn: Turn,
        total: Resources,
        groups: Mapping[Group, Resources],
        shapes: Sequence[ResourceRequirement],
        queues: Iterable[Queue] = (),
    ) -> None:
        self._total = total
        self._full = _Full(shapes, {group.key for group in groups})
        known = {queue.name: queue for queue in queues}
        known |= {group.queue: Queue(group.queue) for group in groups if turn is Turn.DRF and group.queue not in known}
        self._leaves = {
            group: Leaf(
                str(number),
                group.queue if turn is Turn.DRF else ROOT,
                _vector(amount),
                priority=0 if turn is Turn.FIFO else group.priority,
                shape=group.key,
                apart=True,
            )
            for number, (group, amount) in enumerate(groups.items())
        }
        self._tree = ShareTree(total, known.values(), self._leaves.values(), Order.FIFO)
        self._groups = {leaf: group for group, leaf in self._leaves.items()}
        self._numbers: dict[Group, deque[int]] = {group: deque() for group in groups}
        self._held = {group.queue: [0, 0, 0] for group in groups}
        self._shares = dict.fromkeys(self._held, 0.0)
        self._backlog = dict.fromkeys(self._held, 0)
        self._may_fit = False

    def add(self, number: int, group: Group) -> None:
        """Add an arriving task."""
        leaf, numbers = self._leaves[group], self._numbers[group]
        if not numbers:
            leaf.number = number
        leaf.target += 1
        numbers.append(number)
        self._backlog[group.queue] += 1
        self._may_fit |= group.key not in self._full.now

    def start(self, place: Callable[[int], bool]) -> None:
        """Try waiting tasks in order until none fits. `place` returns whether a task was placed."""
        if not self._may_fit:
            return
        self._may_fit = False

        def grant(leaf: Leaf) -> Code | None:
            group = self._groups[leaf]
            numbers = self._numbers[group]
            if not place(next(iter(numbers))):
                self._tree.note_full(self._full.add(group.key), Code.GPU)
                return Code.GPU
            numbers.popleft()
            if numbers:
                leaf.number = next(iter(numbers))
            self._backlog[group.queue] -= 1
            self._hold(group.queue, leaf.unit, 1)
            return None

        self._tree.fill(grant, same_shape=True)

    def ended(self, group: Group) -> None:
        """Release the resources of an ended task."""
        leaf = self._leaves[group]
        self._tree.free(leaf)
        self._hold(group.queue, leaf.unit, -1)

    def retry(self, idle: int) -> None:
        """Have tasks tried again after others ended. No node that they left has more than `idle` idle cards."""
        self._full.clear_up_to(idle)
        self._tree.renew()
        self._tree.note_full(self._full.now, Code.GPU)
        self._may_fit = True

    def _hold(self, queue: str, unit: Vector, sign: int) -> None:
        held = self._held[queue]
        for dimension, amount in enumerate(unit):
            held[dimension] += sign * amount
        self._shares[queue] = dominant_share(Resources(*held), self._total)

    def backlogged(self) -> list[float]:
        """Return the dominant shares of the queues with waiting tasks."""
        return [self._shares[queue] for queue, waiting in self._backlog.items() if waiting]

    def pending(self) -> Iterable[int]:
        """Return the tasks that still wait."""
        return sorted(number for numbers in self._numbers.values() for number in numbers)


class _Full:
    """The keys of tasks that do not fit `now`: those that failed, and those that need at least as much."""

    def __init__(self, shapes: Sequence[ResourceRequirement], all_: set[tuple[int, int]]) -> None:
        self._shapes, self._all = shapes, all_
        self._harder: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.now: set[tuple[int, int]] = set()

    def add(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """Record that a task does not fit. Return its key and the keys of tasks that need at least as much."""
        if key not in self._harder:
            shape, units = key
            asked = self._shapes[shape]
            self._harder[key] = [
                other for other in self._all if other[1] >= units and _no_less(self._shapes[other[0]], asked)
            ]
        self.now.update(self._harder[key])
        return self._harder[key]

    def clear_up_to(self, cards: int) -> None:
        """Remove all keys except those of tasks with more than `cards` whole cards."""
        self.now = {key for key in self.now if self._shapes[key[0]].whole and self._shapes[key[0]].gpu_count > cards}


def _no_less(one: ResourceRequirement, other: ResourceRequirement) -> bool:
    """Return whether the first requirement needs at least as much as the second, with the same conditions."""
    amounts = (one.cpu_milli, one.memory_bytes, one.gpu_count)
    others = (other.cpu_milli, other.memory_bytes, other.gpu_count)
    same = (one.part, one.cards, one.nodes) == (other.part, other.cards, other.nodes)
    return same and all(a >= b for a, b in zip(amounts, others, strict=True))


def _vector(amount: Resources) -> Vector:
    return (amount.cpu_milli, amount.memory_bytes, amount.gpu_milli)
