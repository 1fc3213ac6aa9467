"""One session or task with what it was asked to be: its program, its limits, those of its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from ullage.model.application import COMMAND
from ullage.model.error import NotFound
from ullage.model.identity import Role
from ullage.model.queue import Limit, Queue, QueueBounds
from ullage.model.queue_bounds import upwards
from ullage.model.task import TaskState
from ullage.server.access import Whose, needs
from ullage.server.answers import Answers, task_body
from ullage.server.parameters import session_of, task_of
from ullage.server.routes import LongBody, route
from ullage.server.snapshot import limit_text
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord
from ullage.service.store_port import Page
from ullage.wire.body import body_of
from ullage.wire.details import ProgramBody, QueueLimitsBody, SessionDetails, TaskDetails
from ullage.wire.explanation import Explanation
from ullage.wire.session import TaskBody
from ullage.worker.command import command_of

_FIRST = 1
"""The first task of a session."""

_ENDED = [state for state in TaskState if state.terminal]


class DetailsApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService, answers: Answers) -> None:
        self._service = service
        self._answers = answers

    @route("GET", "/v1/sessions/{session}/details", "sessions")
    @needs(Role.USER, Whose.OWN)
    async def get_session_details(self, request: Request) -> LongBody[SessionDetails]:
        """Return a session with its program, its limits, and those of its queue."""
        record = self._service.state.session(session_of(request))
        program = await asyncio.to_thread(self._program(record, _FIRST))
        body, spec = self._answers.session(record), record.session.spec
        stated = {
            **self._limits(record),
            "program": program,
            "environment": sorted(spec.setup.environment),
            "queue_limits": [_limits_of(queue) for queue in self._queues(spec.queue)],
        }
        return lambda: body_of(SessionDetails, body() if callable(body) else body, spec, spec.setup, **stated)

    @route("GET", "/v1/sessions/{session}/tasks/{task}/details", "tasks")
    @needs(Role.USER, Whose.OWN)
    async def get_task_details(self, request: Request) -> TaskDetails:
        """Return one task with its program and its limits."""
        session, task = session_of(request), task_of(request)
        record, body = self._service.state.session(session), find_task(self._service, session, task)
        program = await asyncio.to_thread(self._program(record, task))
        return body_of(TaskDetails, body, record.session.spec, **self._limits(record), program=program)

    @route("GET", "/v1/sessions/{session}/why", "sessions")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def explain_session(self, request: Request) -> LongBody[Explanation]:
        """Explain why a session has the executors that it has, or how it ended."""
        session = session_of(request)
        evicted = await asyncio.to_thread(self._service.store.events, Page(0, 1), session, evictions=True)
        failed = await asyncio.to_thread(self._service.store.ended, session, [TaskState.FAILED], Page(0, 1))
        explain = self._answers.explanation(session, evicted[0] if evicted else None)
        counts = {state.value: count for state, count in self._service.state.session(session).counts.items() if count}
        failures = [find_task(self._service, session, task.task) for task in failed]
        return lambda: replace(explain(), tasks=counts, first_failure=next(iter(failures), None))

    def _limits(self, record: SessionRecord) -> dict[str, Any]:
        """Return what is in force for each task of a session."""
        state = self._service.state
        return {"task_timeout_s": state.timeout_of(record), "retries": state.retries_of(record)}

    def _queues(self, name: str) -> Iterator[Queue]:
        """Return a queue and those above it, as far as they bound anything."""
        above = upwards(self._service.state.queues, name)
        return (queue for queue in above if queue.limit != Limit() or queue.bounds != QueueBounds())

    def _program(self, record: SessionRecord, number: int) -> Callable[[], ProgramBody | None]:
        """Return a function for a thread that returns the program of a task; None if it has none."""
        if record.session.spec.application != COMMAND.name:
            return lambda: None
        task = record.tasks.get(number)
        if task is None:
            return partial(self._stored_program, record.id, number)
        submission = record.submissions.get(task.submission)
        return partial(_program_of, task.input, None if submission is None else submission.shared)

    def _stored_program(self, session: str, number: int) -> ProgramBody | None:
        store = self._service.store
        for task in store.ended(session, _ENDED, Page(number - 1, 1)):
            if task.task == number:
                return _program_of(task.input, store.shared(session, task.submission))
        return None


def find_task(service: UllageService, session: str, task: int) -> TaskBody:
    """Return one task.

    Raises:
        NotFound: the session or the task does not exist.

    """
    for view, state in service.tasks.list(session, Page(task - 1, 1)):
        if view.task == task:
            return task_body(view, state, service.state.session(session).session.elements)
    raise NotFound(f"task {task} of session {session} does not exist", field="task")


def _program_of(data: bytes, shared: bytes | None) -> ProgramBody | None:
    """Return the program in the input of a task; None if it is not one of ours."""
    try:
        command = command_of(data, shared)
    except msgspec.MsgspecError:
        return None
    return ProgramBody(
        argv=command.argv,
        working_directory=command.cwd,
        environment=sorted(command.env),
        stdin_bytes=None if command.stdin is None else len(command.stdin),
    )


def _limits_of(queue: Queue) -> QueueLimitsBody:
    bounds = queue.bounds
    return QueueLimitsBody(
        queue=queue.name,
        limit=limit_text(queue.limit),
        max_resreq=limit_text(bounds.max_resreq),
        max_time_s=bounds.max_time_s,
    )
