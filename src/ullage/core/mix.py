"""The workload: which classes of tasks there are and how popular each is, counted or learned live.

A class is what the fit of a task depends on: cpu, share, cards, allowed models. Memory is a filter
only and no part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ullage.core.kernel.task_class import ANY_MODEL, WHOLE, Classes, Popularity

_COLD = 50
"""Tasks seen before the first estimate; until then placement is best fit."""

_GROWTH = 1.5
"""An estimate is made again after the number of tasks seen has grown by this factor."""

_WIDE = 4
"""Cards from which a node's own size counts as a class of tasks that may come."""


class TaskClass(NamedTuple):
    """Milli CPU, thousandths of each card (0 without cards, 1000 for whole ones), cards, models as a bit mask."""

    cpu_milli: int
    share_milli: int
    cards: int
    models: int = ANY_MODEL


class Workload(NamedTuple):
    """Classes by popularity, most popular first, as compiled code takes them, and how many tasks they stand for."""

    classes: Classes
    popularity: Popularity
    tasks: int


def _workload(counted: Sequence[tuple[TaskClass, int]], tasks: int) -> Workload:
    total = sum(count for _, count in counted)
    classes = np.array([task for task, _ in counted], np.int64).reshape(len(counted), 4)
    return Workload(classes, np.array([count / total for _, count in counted]), tasks)


def _by_count(tasks: Counter[TaskClass]) -> list[tuple[TaskClass, int]]:
    return sorted(tasks.items(), key=lambda counted: (counted[1], counted[0]), reverse=True)


def count_tasks(tasks: Iterable[TaskClass]) -> Workload:
    """The workload that these tasks are. Order does not matter; equal counts are ordered by class."""
    counted = Counter(tasks)
    return _workload(_by_count(counted), counted.total())


def typical(tasks: Iterable[TaskClass], coverage: float = 0.95) -> Workload:
    """The most popular classes that together make up `coverage` of all tasks, popularity summing to 1 again.

    Source: Weng et al., USENIX ATC'23, section 4 (there 95 %).
    """
    counted = Counter(tasks)
    chosen: list[tuple[TaskClass, int]] = []
    covered = 0
    for entry in _by_count(counted):
        if covered >= coverage * counted.total():
            break
        chosen.append(entry)
        covered += entry[1]
    return _workload(chosen, covered)


class LiveWorkload:
    """The workload learned from tasks as they come.

    Cold (`estimate` is None) for 50 tasks; then estimated from all tasks seen so far, again at every
    growth by half (50, 75, 113, ...), so that a long history costs few estimates.
    """

    def __init__(self) -> None:
        self._tasks = Counter[TaskClass]()
        self._due = _COLD
        self.estimate: Workload | None = None

    def see(self, task: TaskClass) -> bool:
        """Counts a task that arrived, placed or not; True if `estimate` was made anew."""
        self._tasks[task] += 1
        seen = self._tasks.total()
        if seen < self._due:
            return False
        self._due = int(seen * _GROWTH)
        self.estimate = _workload(_by_count(self._tasks), seen)
        return True


def may_come(nodes: Iterable[tuple[int, int]]) -> list[TaskClass]:
    """Wide tasks that the fleet invites though none may have come yet.

    For every kind of node (milli CPU, cards) with 4 cards or more, one that takes all its cards and
    90 % of its CPU.
    """
    return sorted({TaskClass(cpu * 9 // 10, WHOLE, cards) for cpu, cards in nodes if cards >= _WIDE})
