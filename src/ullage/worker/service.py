"""What a worker's author implements."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ullage.worker.context import Context


class Task(msgspec.Struct, frozen=True, gc=False):
    """One task: `shared` is the data named by `shared_id`, which other tasks of the session use too."""

    id: int
    input: bytes
    shared_id: int | None = None
    shared: bytes | None = None


class TaskFailed(Exception):
    """Raised by a service to end a task with a return code, a text for people, and maybe an output."""

    def __init__(self, message: str, *, code: int = 1, output: bytes | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.output = output


class Service(Protocol):
    """Runs tasks. All three are called from the main thread, never two at a time.

    An exception from `on_session_enter` fails the bind; one from `on_task_invoke` fails the task
    with code 1 (`TaskFailed`: with its own code); one from `on_session_leave` is logged.
    """

    def on_session_enter(self, context: Context) -> None:
        """Prepare for the tasks of one session."""

    def on_task_invoke(self, task: Task) -> bytes | None:
        """Run one task and return its output."""

    def on_session_leave(self) -> None:
        """Let go of what the session needed."""
