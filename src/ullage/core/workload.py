"""The workload: which classes of tasks there are and how popular each is.

A class is what the fit of a task depends on: cpu, share of a card, cards, models. Memory only filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.core.fleet import Fleet
from ullage.core.kernel import task_class as at
from ullage.core.kernel.task_class import Classes, Popularity
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI

COVERED = 0.95
"""The part of all tasks that the classes of a typical workload cover."""

_MOST_KINDS = 62
"""Kinds of cards that a mask can tell apart; those beyond are allowed to nobody who names a model."""


@dataclass(frozen=True, order=True, slots=True)
class TaskClass:
    """Thousandths of a CPU, thousandths of each card (0 without cards), cards, models (empty: any)."""

    cpu_milli: int
    share_milli: int
    cards: int
    models: tuple[str, ...] = ()


def class_of(asked: ResourceRequirement) -> TaskClass:
    """The class of a requirement; a part named in TFLOPS or bytes counts as a whole card."""
    share = 0
    if asked.gpu_count:
        share = (asked.part.share_milli if asked.part else 0) or MILLI
    return TaskClass(asked.cpu_milli, share, asked.gpu_count, asked.cards.models)


@dataclass(frozen=True, slots=True)
class Workload:
    """Classes with their part of all tasks; the parts add up to one."""

    classes: tuple[TaskClass, ...]
    popularity: tuple[float, ...]

    @classmethod
    def counted(cls, counts: Sequence[tuple[TaskClass, int]]) -> Workload:
        """The workload of so many tasks of each class."""
        total = sum(count for _, count in counts)
        return cls(tuple(each for each, _ in counts), tuple(count / total for _, count in counts))

    def on(self, fleet: Fleet) -> tuple[Classes, Popularity]:
        """The workload as compiled code takes it: models become a mask of the fleet's kinds of cards."""
        models = [fleet.cards[card].model for card in fleet.kinds[:_MOST_KINDS]]
        classes = np.zeros((len(self.classes), at.COLUMNS), dtype=np.int64)
        for row, each in enumerate(self.classes):
            named = sum(1 << kind for kind, model in enumerate(models) if model in each.models)
            classes[row] = each.cpu_milli, each.share_milli, each.cards, named if each.models else at.ANY_MODEL
        return classes, np.array(self.popularity, dtype=np.float64)


NOTHING = Workload((), ())
"""The workload of whoever knows none."""


def typical_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """The most frequent classes, until they cover 95 % of the tasks; of equal ones the largest first.

    Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 5, and its simulator.
    """
    counts = Counter(map(class_of, tasks))
    ordered = sorted(counts.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
    kept: list[tuple[TaskClass, int]] = []
    covered, enough = 0, COVERED * counts.total()
    for pair in ordered:
        if covered >= enough:
            break
        covered += pair[1]
        kept.append(pair)
    return Workload.counted(kept)
