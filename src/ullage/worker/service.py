"""The interface that a custom worker implements."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ullage.worker.context import Context


class Task(msgspec.Struct, frozen=True, gc=False):
    """One task. `shared` is the data of `shared_id`, which other tasks of the session use too."""

    id: int
    input: bytes
    shared_id: int | None = None
    shared: bytes | None = None


class TaskFailed(Exception):
    """Ends a task with a return code, a message and optionally an output. A service raises it."""

    def __init__(self, message: str, *, code: int = 1, output: bytes | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.output = output


class Service(Protocol):
    """Runs tasks. The main thread calls the methods, one at a time.

    An exception from `on_session_enter` fails the bind; one from `on_task_invoke` fails the task
    with code 1 (`TaskFailed`: with its own code); one from `on_session_leave` is logged.
    """

    def on_session_enter(self, context: Context) -> None:
        """Prepare for the tasks of one session."""

    def on_task_invoke(self, task: Task) -> bytes | None:
        """Run one task and return its output."""

    def on_session_leave(self) -> None:
        """Release the resources of the session."""
