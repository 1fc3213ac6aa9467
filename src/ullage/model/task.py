"""One unit of work in a session."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

SHARED_KEPT = 8
"""Pieces of shared data a worker keeps: the last ones that arrived since its session began."""

LOST_LIMIT = 3
"""How often a task goes back to Pending after its executor was lost, before it fails."""


class TaskState(StrEnum):
    """Pending -> Running -> one of the three terminal states."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEED = "succeed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the task will never change again."""
        return self in (TaskState.SUCCEED, TaskState.FAILED, TaskState.CANCELLED)


STOPPED, TIMED_OUT, LOST = 1, 124, 125
"""Codes of tasks that were ended: on request, at their time limit as by timeout(1), with their executors."""


class Ending(NamedTuple):
    """How a task ends that is ended by the service, not by its worker."""

    state: TaskState
    code: int
    message: str


class TaskResult(NamedTuple):
    """How a task ended: written once, never changed.

    `code` is the return code of the worker (0 for success) or of an `Ending`. `sequence` is the order of endings in the
    session, from 1. Times are seconds since the epoch; `started_at` is None for a task that never ran.
    """

    session: str
    task: int
    sequence: int
    state: TaskState
    code: int
    output: bytes | None
    message: str
    executor: str | None
    started_at: float | None
    ended_at: float
