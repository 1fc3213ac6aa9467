"""The workload: which classes of tasks there are and how popular each is, counted or learned live.

A class is what the fit of a task depends on: cpu, share of a card, cards, models. Memory only filters.
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
"""An estimate is made again after the number of tasks seen has grown by this factor."""

_WIDE = 4
"""Cards from which a node's own size counts as a class of tasks that may come."""


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
    """Classes as compiled code takes them: models become a mask of the fleet's kinds of cards."""
    models = [fleet.cards[card].model for card in fleet.kinds[:MOST_KINDS]]
    rows = np.zeros((len(classes), at.COLUMNS), dtype=np.int64)
    for row, each in enumerate(classes):
        named = sum(1 << kind for kind, model in enumerate(models) if model in each.models)
        cpu = min(each.cpu_milli, UNREACHABLE)
        rows[row] = cpu, each.share_milli, each.cards, named if each.models else at.ANY_MODEL
    return rows


@dataclass(frozen=True, slots=True)
class Workload:
    """Classes, the most popular first, with their part of all tasks (together one), and how many tasks they were."""

    classes: tuple[TaskClass, ...]
    popularity: tuple[float, ...]
    tasks: int

    @classmethod
    def counted(cls, counts: Sequence[tuple[TaskClass, int]]) -> Workload:
        """Return the workload of so many tasks of each class."""
        total = sum(count for _, count in counts)
        return cls(tuple(each for each, _ in counts), tuple(count / total for _, count in counts), total)

    def on(self, fleet: Fleet) -> Mix:
        """Return the workload as compiled code takes it."""
        return Mix(rows_of(self.classes, fleet), np.array(self.popularity, dtype=np.float64))


def _most_popular_first(tasks: Counter[TaskClass]) -> list[tuple[TaskClass, int]]:
    """Of equally popular ones the largest first, so that the order of the tasks does not matter."""
    return sorted(tasks.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)


def whole_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """Return all classes of these tasks."""
    return Workload.counted(_most_popular_first(Counter(map(class_of, tasks))))


def typical_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """Return the most frequent classes, until they cover 95 % of the tasks.

    Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 5, and its simulator.
    """
    counts = Counter(map(class_of, tasks))
    kept: list[tuple[TaskClass, int]] = []
    covered, enough = 0, COVERED * counts.total()
    for task, count in _most_popular_first(counts):
        if covered >= enough:
            break
        covered += count
        kept.append((task, count))
    return Workload.counted(kept)


class LiveWorkload:
    """The workload learned from tasks as they come.

    Estimated from the first task on, for the first places decide for long: no rule that knows nothing of
    the workload does as well. Then again at every growth by half (1, 2, 3, 4, 6, 9, ...) from all tasks seen
    so far, so that a long history costs few estimates.
    """

    def __init__(self) -> None:
        self._tasks = Counter[TaskClass]()
        self._seen = 0
        self._due = 1
        self.estimate: Workload | None = None

    def see(self, asked: ResourceRequirement) -> bool:
        """Count a task that arrived, placed or not; True if `estimate` was computed again."""
        self._tasks[class_of(asked)] += 1
        self._seen += 1
        if self._seen < self._due:
            return False
        self._due = max(self._seen + 1, int(self._seen * _GROWTH))
        self.estimate = Workload.counted(_most_popular_first(self._tasks))
        return True


def may_come(fleet: Fleet) -> tuple[TaskClass, ...]:
    """Wide tasks that the fleet invites though none may have come yet.

    For every kind of node (milli CPU, cards) with 4 cards or more, one that takes all its cards and
    90 % of its CPU.
    """
    wide = {(node.cpu_milli, len(node.gpus)) for node in fleet.nodes if len(node.gpus) >= _WIDE}
    return tuple(sorted(TaskClass(cpu * 9 // 10, MILLI, cards) for cpu, cards in wide))
