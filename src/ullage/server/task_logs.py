"""The output of tasks as streams of server-sent events: of one task, and of all tasks of a session."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request

from ullage.model.error import NotFound, invalid
from ullage.model.identity import Role
from ullage.model.task import TaskState
from ullage.server.access import Whose, needs
from ullage.server.details import find_task
from ullage.server.parameters import count_of, flag_of, session_of, task_of, time_of
from ullage.server.routes import route
from ullage.server.session_output import SessionOutput
from ullage.server.task_output import TaskOutput, event
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord
from ullage.service.store_port import Page
from ullage.wire.log_start import LogStart

LOG_POLL_S = 0.05
"""Seconds between two reads of a log without new data."""

SESSION_POLL_S = 0.1
"""Seconds between two reads of the logs of a session without new data."""

PING_S = 2
"""Seconds between comments in a stream: a client notices soon that its server is gone."""

_RESULTS = 1000
_CURSOR = re.compile(r"(?:s(\d{1,18}))?o(\d{1,18})e(\d{1,18})", re.ASCII)
_TERMINAL = frozenset(state.value for state in TaskState if state.terminal)


class TaskLogs:
    """Handlers of logs. `task_logs` is where the engine writes the output of tasks."""

    def __init__(self, service: UllageService, task_logs: Path) -> None:
        self._service = service
        self._task_logs = task_logs

    @route("GET", "/v1/sessions/{session}/tasks/{task}/log", "tasks", query=("follow", "tail", "within"))
    @needs(Role.USER, Whose.OWN)
    async def stream_log(self, request: Request) -> EventSourceResponse:
        """Stream the output of a task as server-sent events: stdout, stderr, note, end.

        Data is base64. The header `Last-Event-ID` resumes where a lost connection stopped.
        """
        session, task = session_of(request), task_of(request)
        record = self._service.state.session(session)
        find_task(self._service, session, task)
        folder, number = self._task_logs / record.session.logs, record.session.number
        start = _start(request)
        cursor = request.headers.get("last-event-id")
        if cursor is not None:
            out, err = _positions(cursor, record)
            output = TaskOutput(number, folder, task, out, err=err)
        else:
            output = TaskOutput(number, folder, task)
            await asyncio.to_thread(output.start_at, start)
        return EventSourceResponse(self._follow(record, task, output, follow=_follows(request)), ping=PING_S)

    @route("GET", "/v1/sessions/{session}/log", "sessions", query=("follow", "after", "tail", "within"))
    @needs(Role.USER, Whose.OWN)
    async def stream_session_log(self, request: Request) -> EventSourceResponse:
        """Stream the output of all tasks of a session as server-sent events: stdout, stderr, note, ended, end.

        Data is base64. The id of an event names its task, and the positions in both streams after it, as
        `s<session>t<task>o<bytes>e<bytes>`. `ended` lists tasks whose output is complete.
        """
        record, start = self._service.state.session(session_of(request)), _start(request)
        folder = self._task_logs / record.session.logs
        output = SessionOutput(record.session.number, folder, start, count_of(request, "after", 0))
        followed = self._follow_session(record, output) if _follows(request) else self._list_session(record, output)
        return EventSourceResponse(followed, ping=PING_S)

    async def _follow(
        self, record: SessionRecord, task: int, output: TaskOutput, *, follow: bool
    ) -> AsyncIterator[bytes]:
        """Yield the events of one log in chunks.

        The last event has the result of the task, if the session still exists.
        """
        ended = False
        while self._exists(record):
            # Checked before reading, so that exactly the output before the end is read.
            if not ended and (not follow or self._has_ended(record, task)):
                await asyncio.to_thread(output.stop_at_end)
                ended = True
            events = await asyncio.to_thread(output.read)
            for each in events:
                yield each
            if ended and not events:
                try:
                    body = find_task(self._service, record.id, task)
                except NotFound:  # deleted meanwhile
                    return
                yield event("end", msgspec.json.encode(body))
                return
            if not events:
                await self._service.news.wait(record.id, LOG_POLL_S)

    async def _list_session(self, record: SessionRecord, output: SessionOutput) -> AsyncIterator[bytes]:
        """Yield what all tasks have printed until now, one task after the other."""
        await asyncio.to_thread(output.find, stop=True)
        output.end(output.tasks)
        while self._exists(record):
            events = await asyncio.to_thread(output.read)
            for each in events:
                yield each
            if not events:
                yield event("end", b"{}")
                return

    async def _follow_session(self, record: SessionRecord, output: SessionOutput) -> AsyncIterator[bytes]:
        """Yield what all tasks print, until the session is closed."""
        sequence = record.durable
        await asyncio.to_thread(output.find)
        output.end(task for task in output.tasks if not self._service.tasks.unfinished(record.id, task))
        while self._exists(record):
            closed = not record.open and record.durable == record.sequence
            output.add(_running(record))
            ended, sequence = await self._ended(record, sequence)
            output.end(ended)
            events = await asyncio.to_thread(output.read)
            for each in events:
                yield each
            if closed and not events:
                yield event("end", b"{}")
                return
            if not events:
                await self._service.news.wait(record.id, SESSION_POLL_S)

    async def _ended(self, record: SessionRecord, sequence: int) -> tuple[list[int], int]:
        """Return the tasks that ended after a result, and the number of the last result."""
        page = Page(sequence, _RESULTS)
        found = self._service.tasks.recent_results(record.id, page)
        if found is None:
            found = await asyncio.to_thread(self._service.store.results, record.id, page)
        return [result.task for result in found], max((result.sequence for result in found), default=sequence)

    def _exists(self, record: SessionRecord) -> bool:
        return self._service.state.sessions.get(record.id) is record

    def _has_ended(self, record: SessionRecord, task: int) -> bool:
        """Return whether the end of a task is stored.

        The store is read only once no executor has the task.
        """
        if self._service.tasks.unfinished(record.id, task):
            return False
        try:
            return find_task(self._service, record.id, task).state in _TERMINAL
        except NotFound:
            return True


def _running(record: SessionRecord) -> list[int]:
    """Return the task that each executor of a session runs, without those that wait behind it."""
    return [next(iter(executor.tasks.values())).id for executor in record.executors.values() if executor.tasks]


def _follows(request: Request) -> bool:
    return flag_of(request, "follow")


def _start(request: Request) -> LogStart:
    age_s = time_of(request, "within")
    lines = count_of(request, "tail", 0) if "tail" in request.query_params else None
    return LogStart(lines, None if age_s is None else time.time() - age_s)


def _positions(cursor: str, record: SessionRecord) -> tuple[int, int]:
    """Return the positions in both streams of a `Last-Event-ID`."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise invalid("Last-Event-ID", cursor[:100], "it has the form s<session>o<bytes>e<bytes>")
    number, out, err = match.groups()
    if number is not None and int(number) != record.session.number:
        raise NotFound(
            f"the followed session {record.id} is deleted, and another one has its id",
            field="session",
        )
    return int(out), int(err)
