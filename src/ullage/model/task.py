"""Tasks: the units of work in a session."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

MAX_SHARED_DATA = 8
"""The most pieces of shared data that a worker keeps: the last that arrived in its session."""

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
        return self in (TaskState.SUCCEED, TaskState.FAILED, TaskState.CANCELLED)


STOPPED, TIMED_OUT, LOST = 1, 124, 125
"""Codes of ended tasks: on request, at their time limit as by timeout(1), with their executors."""


class Ending(NamedTuple):
    """The result of a task that is ended by the service, not by its worker."""

    state: TaskState
    code: int
    message: str


class TaskResult(NamedTuple):
    """The result of a task: written once, never changed.

    `code` is the return code of the worker (0 for success) or of an `Ending`. `sequence` is the order of endings in
    the session, from 1. Times are seconds since the epoch; `started_at` is None for a task that never ran.
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
