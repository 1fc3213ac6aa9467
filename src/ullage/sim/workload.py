"""The typical workload: the classes of tasks that fragmentation is measured against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI

COVERED = 0.95
"""The part of all tasks that the classes cover."""


@dataclass(frozen=True, order=True, slots=True)
class TaskClass:
    """What decides where a task can run: cores, thousandths of each card, cards, models (empty: any)."""

    cpu_milli: int
    share_milli: int
    cards: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Classes with their part of the tasks; the parts add up to one."""

    classes: tuple[TaskClass, ...]
    popularity: tuple[float, ...]


def typical_workload(tasks: Iterable[ResourceRequirement]) -> Workload:
    """The most frequent classes, until they cover 95 % of the tasks; of equal ones the largest first.

    Source: "Beware of Fragmentation" (USENIX ATC'23), section 5, and its simulator.
    """
    counts = Counter(map(_class_of, tasks))
    ordered = sorted(((count, each) for each, count in counts.items()), reverse=True)
    kept: list[tuple[int, TaskClass]] = []
    covered, enough = 0, COVERED * counts.total()
    for count, each in ordered:
        if covered >= enough:
            break
        covered += count
        kept.append((count, each))
    return Workload(tuple(each for _, each in kept), tuple(count / covered for count, _ in kept))


def _class_of(asked: ResourceRequirement) -> TaskClass:
    share = 0
    if asked.gpu_count:
        share = asked.resources.gpu_milli // asked.gpu_count if asked.part else MILLI
    return TaskClass(asked.cpu_milli, share, asked.gpu_count, asked.cards.models)
