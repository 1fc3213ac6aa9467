"""A trace: the machines there were, and what arrived."""

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
"""Allocations that a node of a trace may hold: traces say nothing of such a limit."""


class TraceKind(StrEnum):
    """What a task asks of cards: none, a part, one whole, or several."""

    CPU_ONLY = "cpu-only"
    SHARE = "share"
    ONE = "one"
    WIDE = "wide"


def kind_of(asked: ResourceRequirement, units: int = 1) -> TraceKind:
    """Return the kind of a task of so many units of a requirement."""
    if not asked.gpu_count:
        return TraceKind.CPU_ONLY
    if not asked.whole:
        return TraceKind.SHARE
    return TraceKind.WIDE if units * asked.gpu_count > 1 else TraceKind.ONE


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One arrival: `units` of a requirement that start together, for `duration_s` (None: it never ends)."""

    name: str
    requirement: ResourceRequirement
    arrival_s: float = 0.0
    duration_s: float | None = None
    queue: str = "default"
    priority: int = 0
    units: int = 1


@dataclass(frozen=True)
class Trace:
    """Nodes, tasks in the order of the file, and queues; one that is not among them is like all others."""

    name: str
    nodes: tuple[Node, ...]
    tasks: tuple[TraceTask, ...]
    queues: tuple[Queue, ...] = ()

    @cached_property
    def shapes(self) -> tuple[ResourceRequirement, ...]:
        """The distinct requirements, in the order in which they come first."""
        return tuple(dict.fromkeys(task.requirement for task in self.tasks))

    @cached_property
    def shape_numbers(self) -> Numbers:
        """Per task, the position of its requirement in `shapes`."""
        number = {shape: position for position, shape in enumerate(self.shapes)}
        return np.array([number[task.requirement] for task in self.tasks], dtype=np.int64)
