"""The workload: the classes of tasks and their popularity, counted or learned live.

A class has what the fit of a task depends on: cpu, share of a card, cards, models. Memory only filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import task_class as at
from ullage.core.kernel.columns import UNREACHABLE
from ullage.core.kernel.task_class import MOST_KINDS, Classes, Mix
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI

COVERED = 0.95
"""The part of all tasks that the classes of a typical workload cover."""

_GROWTH = 1.5
"""The estimate is repeated when the number of tasks has grown by this factor."""

_MOST_NEW = 1024
"""Tasks that are counted together, at most."""

_WIDE = 4
"""Cards from which the size of a node counts as a class of tasks that may arrive."""


class TaskClass(NamedTuple):
    """Thousandths of a CPU, thousandths of each card (0 without cards), cards, models (empty: any)."""

    cpu_milli: int
    share_milli: int
    cards: int
    models: tuple[str, ...] = ()


def class_of(asked: ResourceRequirement) -> TaskClass:
    """Return the class of a requirement; a part named in TFLOPS or bytes counts as a whole card."""
    share = 0
    if asked.gpu_count:
        share = (asked.part.share_milli if asked.part else 0) or MILLI
    return TaskClass(asked.cpu_milli, share, asked.gpu_count, asked.cards.models)


def rows_of(classes: Sequence[TaskClass], fleet: Fleet) -> Classes:
    """Return classes as rows: models become a mask of the fleet's kinds of cards."""
    models = [fleet.cards[card].model for card in fleet.kinds[:MOST_KINDS]]
    rows = np.zeros((len(classes), at.COLUMNS), dtype=np.int64)
    for row, each in enumerate(classes):
        named = sum(1 << kind for kind, model in enumerate(models) if model in each.models)
        cpu = min(each.cpu_milli, UNREACHABLE)
        rows[row] = cpu, each.share_milli, each.cards, named if each.models else at.ANY_MODEL
    return rows


@dataclass(frozen=True, slots=True)
class Workload:
    """Classes, the most popular first, with their part of all tasks (the sum is 1), and the number of tasks."""

    classes: tuple[TaskClass, ...]
    popularity: tuple[float, ...]
    tasks: int

    @classmethod
    def counted(cls, counts: Sequence[tuple[TaskClass, int]]) -> Workload:
        """Return the workload of these counts per class."""
        total = sum(count for _, count in counts)
        return cls(tuple(each for each, _ in counts), tuple(count / total for _, count in counts), total)

    def on(self, fleet: Fleet) -> Mix:
        """Return the workload in rows."""
        return Mix(rows_of(self.classes, fleet), np.array(self.popularity, dtype=np.float64))


def _most_popular_first(tasks: Counter[TaskClass]) -> list[tuple[TaskClass, int]]:
    """Return classes by popularity, equal ones by size, so that the order of the tasks does not matter."""
    ranked = sorted(((count, task) for task, count in tasks.items()), reverse=True)
    return [(task, count) for count, task in ranked]


def whole_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """Return all classes of these tasks."""
    return Workload.counted(_most_popular_first(Counter(map(class_of, tasks))))


def typical_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """Return the most frequent classes, until they cover 95 % of the tasks.

    Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 5, and its simulator.
    """
    counts = Counter(map(class_of, tasks))
    typical: list[tuple[TaskClass, int]] = []
    covered, enough = 0, COVERED * counts.total()
    for task, count in _most_popular_first(counts):
        if covered >= enough:
            break
        covered += count
        typical.append((task, count))
    return Workload.counted(typical)


class LiveWorkload:
    """The workload learned from tasks as they come.

    It is estimated from the first task on, because the first placements have a long effect: no rule without knowledge
    of the workload does as well. It is estimated again at each growth by half (1, 2, 3, 4, 6, 9, ...) from all tasks
    so far, so that a long history costs few estimates.
    """

    def __init__(self) -> None:
        self._tasks = Counter[TaskClass]()
        self._counted = 0
        self._new: list[ResourceRequirement] = []
        """The last tasks, which are not counted yet."""
        self._most_new = 1
        self._due = 1
        self.estimate: Workload | None = None

    def see(self, asked: ResourceRequirement) -> bool:
        """Count a task that arrived, placed or not. Return whether `estimate` was computed again."""
        self._new.append(asked)
        return len(self._new) >= self._most_new and self._count()

    def _count(self) -> bool:
        """Count the new tasks, and estimate again if that is due."""
        by_object = {id(asked): asked for asked in self._new}
        for number, times in Counter(map(id, self._new)).items():
            self._tasks[class_of(by_object[number])] += times
        self._counted += len(self._new)
        self._new.clear()
        is_due = self._counted >= self._due
        if is_due:
            self._due = max(self._counted + 1, int(self._counted * _GROWTH))
            self.estimate = Workload.counted(_most_popular_first(self._tasks))
        self._most_new = min(self._due - self._counted, _MOST_NEW)
        return is_due


def may_come(fleet: Fleet) -> tuple[TaskClass, ...]:
    """Return wide tasks that the fleet invites, even if none has arrived.

    For each kind of node (milli CPU, cards) with 4 cards or more, it is one that takes all cards and 90 % of the CPU.
    """
    wide = {(node.cpu_milli, len(node.gpus)) for node in fleet.nodes if len(node.gpus) >= _WIDE}
    return tuple(sorted(TaskClass(cpu * 9 // 10, MILLI, cards) for cpu, cards in wide))
