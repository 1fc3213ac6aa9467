"""What waits for room, and whose turn it is: the scheduler's own share tree decides."""

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

    @property
    def fits(self) -> tuple[int, int]:
        """What decides whether there is room."""
        return self.shape, self.units


class Waiting:
    """Tasks by their number, which grows with arrival; and what each queue holds.

    Every task is a session that wants one unit, all its executors at once. Under DRF the queues of the trace are
    those of the share tree; under the other turns all tasks are in one queue, under FIFO of one priority. What
    found no room is not tried again before something ends, and keeps nobody else from being tried.

    `groups` says what a task of each group takes, `shapes` what requirement its shape is. A queue that is not
    among `queues` has weight 1 and no parent.
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
        self._full = _Full(shapes, {group.fits for group in groups})
        known = {queue.name: queue for queue in queues}
        known |= {group.queue: Queue(group.queue) for group in groups if turn is Turn.DRF and group.queue not in known}
        self._leaves = {
            group: Leaf(
                str(number),
                group.queue if turn is Turn.DRF else ROOT,
                _vector(amount),
                priority=0 if turn is Turn.FIFO else group.priority,
                shape=group.fits,
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
        self._hopeful = False

    def add(self, number: int, group: Group) -> None:
        """A task arrives."""
        leaf, numbers = self._leaves[group], self._numbers[group]
        if not numbers:
            leaf.number = number
        leaf.target += 1
        numbers.append(number)
        self._backlog[group.queue] += 1
        self._hopeful |= group.fits not in self._full.now

    def start(self, place: Callable[[int], bool]) -> None:
        """Try what waits, in turn, until nothing more fits. `place` says whether a task was placed."""
        if not self._hopeful:
            return
        self._hopeful = False

        def grant(leaf: Leaf) -> Code | None:
            group = self._groups[leaf]
            numbers = self._numbers[group]
            if not place(next(iter(numbers))):
                self._tree.note_full(self._full.note(group.fits), Code.GPU)
                return Code.GPU
            numbers.popleft()
            if numbers:
                leaf.number = next(iter(numbers))
            self._backlog[group.queue] -= 1
            self._hold(group.queue, leaf.unit, 1)
            return None

        self._tree.fill(grant, same_shape=True)

    def ended(self, group: Group) -> None:
        """A task gave back what it held."""
        leaf = self._leaves[group]
        self._tree.free(leaf)
        self._hold(group.queue, leaf.unit, -1)

    def try_again(self, idle: int) -> None:
        """There is room again, perhaps: where it is, no node has more than so many idle cards."""
        self._full.keep_wider(idle)
        self._tree.renew()
        self._tree.note_full(self._full.now, Code.GPU)
        self._hopeful = True

    def _hold(self, queue: str, unit: Vector, sign: int) -> None:
        held = self._held[queue]
        for dimension, amount in enumerate(unit):
            held[dimension] += sign * amount
        self._shares[queue] = dominant_share(Resources(*held), self._total)

    def backlogged(self) -> list[float]:
        """Dominant shares of the queues that have something waiting."""
        return [self._shares[queue] for queue, waiting in self._backlog.items() if waiting]

    def left(self) -> Iterable[int]:
        """Return the tasks that still wait."""
        return sorted(number for numbers in self._numbers.values() for number in numbers)


class _Full:
    """What has no room `now`: who needs at least as much as something that found none, has none either."""

    def __init__(self, shapes: Sequence[ResourceRequirement], all_: set[tuple[int, int]]) -> None:
        self._shapes, self._all = shapes, all_
        self._harder: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.now: set[tuple[int, int]] = set()

    def note(self, fits: tuple[int, int]) -> list[tuple[int, int]]:
        """Record that a task found no room. Return it and all that ask for at least as much."""
        if fits not in self._harder:
            shape, units = fits
            asked = self._shapes[shape]
            self._harder[fits] = [
                other for other in self._all if other[1] >= units and _no_less(self._shapes[other[0]], asked)
            ]
        self.now.update(self._harder[fits])
        return self._harder[fits]

    def keep_wider(self, cards: int) -> None:
        """Forget what so many whole cards, or anything beside cards, may have made room for."""
        self.now = {
            fits for fits in self.now if self._shapes[fits[0]].whole and self._shapes[fits[0]].gpu_count > cards
        }


def _no_less(one: ResourceRequirement, other: ResourceRequirement) -> bool:
    """Return whether the first asks for at least as much as the second, on the same terms."""
    amounts = (one.cpu_milli, one.memory_bytes, one.gpu_count)
    others = (other.cpu_milli, other.memory_bytes, other.gpu_count)
    same = (one.part, one.cards, one.nodes) == (other.part, other.cards, other.nodes)
    return same and all(a >= b for a, b in zip(amounts, others, strict=True))


def _vector(amount: Resources) -> Vector:
    return (amount.cpu_milli, amount.memory_bytes, amount.gpu_milli)
