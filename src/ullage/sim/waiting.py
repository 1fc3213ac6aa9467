"""What waits for room, and whose turn it is: the scheduler's own share tree decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ullage.core.policy import Order
from ullage.core.shares import Leaf, ShareTree, Vector, dominant_share
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources


class Turn(StrEnum):
    """Who is tried first: who came first, the highest priority, or the queue with the smallest dominant share."""

    FIFO = "fifo"
    PRIORITY = "priority"
    DRF = "drf"


class Group(NamedTuple):
    """Tasks that stand for each other: if one fits, all do. Tried in the order of arrival."""

    queue: str
    priority: int
    shape: int
    units: int


class Waiting:
    """Tasks by their number, which grows with arrival; and what each queue holds.

    Every task is a session that wants one unit, all its executors at once. Under DRF each queue of the trace is
    one of the share tree; under the other turns all tasks are in one queue, under FIFO of one priority. What
    found no room is not tried again before something ends, and keeps nobody else from being tried.

    `groups` says what a task of each group takes; `weights` are of queues, 1 where nothing is said.
    """

    def __init__(
        self, turn: Turn, total: Resources, groups: Mapping[Group, Resources], weights: Mapping[str, int]
    ) -> None:
        self._total = total
        names = {group.queue: f"queue-{n}" for n, group in enumerate(groups)} if turn is Turn.DRF else {}
        self._leaves = {
            group: Leaf(
                str(number),
                names.get(group.queue, ROOT),
                _vector(amount),
                priority=0 if turn is Turn.FIFO else group.priority,
                shape=(group.shape, group.units),
                apart=True,
            )
            for number, (group, amount) in enumerate(groups.items())
        }
        queues = [Queue(name, weight=weights.get(queue, 1)) for queue, name in names.items()]
        self._tree = ShareTree(total, queues, self._leaves.values(), Order.FIFO)
        self._groups = {leaf: group for group, leaf in self._leaves.items()}
        self._numbers: dict[Group, deque[int]] = {group: deque() for group in groups}
        self._held = {group.queue: [0, 0, 0] for group in groups}
        self._shares = dict.fromkeys(self._held, 0.0)
        self._backlog = dict.fromkeys(self._held, 0)

    def add(self, number: int, group: Group) -> None:
        """A task arrives."""
        leaf, numbers = self._leaves[group], self._numbers[group]
        if not numbers:
            leaf.number = number
        leaf.target += 1
        numbers.append(number)
        self._backlog[group.queue] += 1

    def start(self, place: Callable[[int], bool]) -> None:
        """Try what waits, in turn, until nothing more fits. `place` says whether a task was placed."""

        def grant(leaf: Leaf) -> Code | None:
            group = self._groups[leaf]
            numbers = self._numbers[group]
            if not place(numbers[0]):
                return Code.GPU
            numbers.popleft()
            if numbers:
                leaf.number = numbers[0]
            self._backlog[group.queue] -= 1
            self._hold(group.queue, leaf.unit, 1)
            return None

        self._tree.fill(grant, alike=True)

    def ended(self, group: Group) -> None:
        """A task gave back what it held."""
        leaf = self._leaves[group]
        self._tree.free(leaf)
        self._hold(group.queue, leaf.unit, -1)

    def try_again(self) -> None:
        """There is room again, perhaps."""
        self._tree.renew()

    def _hold(self, queue: str, unit: Vector, sign: int) -> None:
        held = self._held[queue]
        for dimension, amount in enumerate(unit):
            held[dimension] += sign * amount
        self._shares[queue] = dominant_share(Resources(*held), self._total)

    def backlogged(self) -> list[float]:
        """Dominant shares of the queues that have something waiting."""
        return [self._shares[queue] for queue, waiting in self._backlog.items() if waiting]

    def left(self) -> Iterable[int]:
        """The tasks that still wait."""
        return sorted(number for numbers in self._numbers.values() for number in numbers)


def _vector(amount: Resources) -> Vector:
    return (amount.cpu_milli, amount.memory_bytes, amount.gpu_milli)
