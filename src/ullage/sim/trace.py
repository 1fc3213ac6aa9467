"""A trace: nodes, and the tasks that arrive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement

Numbers = npt.NDArray[np.int64]

UNLIMITED = 1 << 30
"""The most allocations on a node of a trace: traces have no such limit."""


class TraceKind(StrEnum):
    """The cards of a task: none, a part, one whole, or several."""

    CPU_ONLY = "cpu-only"
    SHARE = "share"
    ONE = "one"
    WIDE = "wide"


def kind_of(asked: ResourceRequirement, units: int = 1) -> TraceKind:
    """Return the kind of a task of `units` of a requirement."""
    if not asked.gpu_count:
        return TraceKind.CPU_ONLY
    if not asked.whole:
        return TraceKind.SHARE
    return TraceKind.WIDE if units * asked.gpu_count > 1 else TraceKind.ONE


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One arrival: `units` of a requirement that start together, for `duration_s` (None: for ever)."""

    name: str
    requirement: ResourceRequirement
    arrival_s: float = 0.0
    duration_s: float | None = None
    queue: str = "default"
    priority: int = 0
    units: int = 1


@dataclass(frozen=True)
class Trace:
    """Nodes, tasks in the order of the file, and queues. An unlisted queue has the default weight."""

    name: str
    nodes: tuple[Node, ...]
    tasks: tuple[TraceTask, ...]
    queues: tuple[Queue, ...] = ()

    @cached_property
    def shapes(self) -> tuple[ResourceRequirement, ...]:
        """The distinct requirements, in order of their first task."""
        return tuple(dict.fromkeys(task.requirement for task in self.tasks))

    @cached_property
    def shape_numbers(self) -> Numbers:
        """The position in `shapes` of the requirement of each task."""
        number = {shape: position for position, shape in enumerate(self.shapes)}
        return np.array([number[task.requirement] for task in self.tasks], dtype=np.int64)
