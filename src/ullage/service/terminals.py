"""Programs with clients in the executors of running tasks."""

from __future__ import annotations

from typing import NamedTuple

from ullage.model.error import Conflict, NotFound
from ullage.model.task import TaskState
from ullage.service.engine_port import Engine, ExecOrder, Terminal
from ullage.service.events import Events
from ullage.service.state import State
from ullage.service.store_port import Page
from ullage.service.tasks import Tasks

_MOST_SHOWN = 100
"""The most characters of the name of a program in an event."""


class RunningTask(NamedTuple):
    """A task that an executor has, with its input and the data that it shares with other tasks."""

    session: str
    task: int
    executor: str
    input: bytes
    shared: bytes | None


class Terminals:
    """Finds the executors of tasks, and what runs there for clients."""

    def __init__(self, state: State, tasks: Tasks, engine: Engine, events: Events) -> None:
        self._state, self._tasks, self._engine, self._events = state, tasks, engine, events

    def running(self, session: str, task: int) -> RunningTask:
        """Return a task that runs.

        Raises:
            NotFound: the session or the task does not exist.
            Conflict: it does not run (`task-not-running`); the message has its state.

        """
        record = self._state.session(session)
        found = record.tasks.get(task)
        if found is None or found.executor is None:
            raise self._not_running(session, task)
        shared = record.submissions[found.submission].shared
        return RunningTask(session, task, found.executor, found.input, shared=shared)

    async def execute(self, order: ExecOrder, user: str) -> Terminal:
        """Start another program in the executor of a task, and record the user who asked for it.

        Raises:
            Conflict: it cannot be started (`exec-failed`, `no-terminals`).

        """
        terminal = await self._engine.execute(order)
        program, *_ = order.argv  # its arguments may be secret
        text = f"{user} runs {program[:_MOST_SHOWN]} in {order.executor}"
        self._events.add("task.exec", order.session, task=order.task, executor=order.executor, user=user, message=text)
        return terminal

    def attach(self, session: str, task: int, user: str) -> None:
        """Record the user who attaches to a task."""
        self._events.add("task.attached", session, task=task, user=user, message=f"{user} attached to task {task}")

    def of_task(self, session: str, task: int) -> Terminal | None:
        """Return the terminal of a running task; None if it has none, or none yet.

        Raises:
            NotFound: the session or the task does not exist.
            Conflict: it does not run (`task-not-running`).

        """
        return self._engine.terminal(self.running(session, task).executor, task)

    def _not_running(self, session: str, task: int) -> Conflict | NotFound:
        for view, state in self._tasks.list(session, Page(task - 1, 1)):
            if view.task == task:
                waits = f"it is {state.value}; `ullage why {session}` says why"
                text = waits if state is TaskState.PENDING else f"it has ended: {state.value}"
                return Conflict(f"task {task} of {session} does not run: {text}", code="task-not-running", field="task")
        return NotFound(f"task {task} of session {session} does not exist", field="task")
