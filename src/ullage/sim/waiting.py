"""What waits for room, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from ullage.core.shares import dominant_share
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

    What found no room is not tried again before something ends, and keeps nobody else from being tried.
    Queues are equal; under DRF the share counts first, then the order of arrival.
    """

    def __init__(self, turn: Turn, total: Resources) -> None:
        self._total = total
        self._groups: dict[Group, deque[int]] = {}
        self._full: set[tuple[int, int]] = set()
        self._held: dict[str, Resources] = {}
        self._shares: dict[str, float] = {}
        self._backlog: dict[str, int] = {}
        self._key = _KEYS[turn]

    def __len__(self) -> int:
        return sum(self._backlog.values())

    def add(self, number: int, group: Group) -> None:
        """A task arrives."""
        self._groups.setdefault(group, deque()).append(number)
        self._backlog[group.queue] = self._backlog.get(group.queue, 0) + 1

    def something_ended(self) -> None:
        """There is room again, perhaps."""
        self._full.clear()

    def start(self, place: Callable[[int], bool], amount: Callable[[int], Resources]) -> None:
        """Try what waits, in turn, until nothing more fits. `place` says whether a task was placed."""
        while True:
            open_ = [group for group in self._groups if group.fits not in self._full]
            if not open_:
                return
            group = min(open_, key=lambda group: self._key(self.share(group.queue), group, self._groups[group][0]))
            number = self._groups[group][0]
            if not place(number):
                self._full.add(group.fits)
                continue
            self._groups[group].popleft()
            if not self._groups[group]:
                del self._groups[group]
            self._backlog[group.queue] -= 1
            self._hold(group.queue, self._held.get(group.queue, Resources()) + amount(number))

    def ended(self, queue: str, amount: Resources) -> None:
        """A task of a queue gave back what it held."""
        self._hold(queue, self._held[queue] - amount)

    def _hold(self, queue: str, held: Resources) -> None:
        self._held[queue] = held
        self._shares[queue] = dominant_share(held, self._total)

    def share(self, queue: str) -> float:
        """The dominant share of a queue."""
        return self._shares.get(queue, 0.0)

    def backlogged(self) -> list[float]:
        """Dominant shares of the queues that have something waiting."""
        return [self.share(queue) for queue, waiting in self._backlog.items() if waiting]

    def left(self) -> list[int]:
        """The tasks that still wait."""
        return sorted(number for numbers in self._groups.values() for number in numbers)


_KEYS: dict[Turn, Callable[[float, Group, int], tuple[float, ...]]] = {
    Turn.FIFO: lambda _share, _group, number: (number,),
    Turn.PRIORITY: lambda _share, group, number: (-group.priority, number),
    Turn.DRF: lambda share, group, number: (share, -group.priority, number),
}
