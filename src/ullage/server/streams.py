"""Server-sent events: the live overview, and a task's output while it runs."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request

from ullage.model.error import NotFound, invalid
from ullage.model.identity import Role
from ullage.model.quantity import format_bytes
from ullage.model.task import TaskState
from ullage.server.access import Authorizer, Whose, needs
from ullage.server.answers import Answers
from ullage.server.api import ServerApi
from ullage.server.parameters import count_of, session_of, task_of
from ullage.server.routes import encoded, route
from ullage.service.news import News
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord
from ullage.wire.output_log import LIMIT, LogReader, NotALog

LIVE_GAP_S = 0.5
"""The least time between two overviews."""

LIVE_BEAT_S = 5.0
"""The most seconds between two overviews, so that ages on a live page are correct."""

LOG_POLL_S = 0.05
"""Seconds between two reads of a log without new data."""

PING_S = 2
"""Seconds between comments in a stream: a client notices soon that its server is gone."""

CHUNK = 64 * 1024
"""Bytes of one event of a log. Other requests are handled after each event."""

_CURSOR = re.compile(r"(?:s(\d{1,18}))?o(\d{1,18})e(\d{1,18})", re.ASCII)
_TERMINAL = frozenset(state.value for state in TaskState if state.terminal)


class Streams:
    """Handlers of streams. `task_logs` is where the engine writes the output of tasks."""

    def __init__(self, service: UllageService, answers: Answers, handlers: ServerApi, task_logs: Path) -> None:
        self._service = service
        self._answers = answers
        self._api = handlers
        self._task_logs = task_logs

    @route("GET", "/v1/live", "server", query=("sessions",))
    @needs(Role.VIEWER)
    async def stream_overviews(self, request: Request) -> EventSourceResponse:
        """Stream overviews as server-sent events when something changes, at most two a second."""
        most = count_of(request, "sessions", 0) if "sessions" in request.query_params else None
        owner = Authorizer(self._service).only_owner(request)
        return EventSourceResponse(self._overviews(most, owner), ping=PING_S)

    async def _overviews(self, most: int | None, owner: str | None) -> AsyncIterator[dict[str, str]]:
        while True:
            # Listening begins before the state is read, so that a change while it is sent is not missed.
            with self._service.news.listen(News.EVERYTHING) as changed:
                overview = await encoded(self._answers.overview(time.time(), most, owner))
                yield {"event": "overview", "data": overview.decode()}
                await asyncio.sleep(LIVE_GAP_S)
                await changed(LIVE_BEAT_S)

    @route("GET", "/v1/sessions/{session}/tasks/{task}/log", "tasks", query=("follow",))
    @needs(Role.USER, Whose.OWN)
    async def stream_log(self, request: Request) -> EventSourceResponse:
        """Stream the output of a task as server-sent events: stdout, stderr, note, end.

        Data is base64. The header `Last-Event-ID` resumes where a lost connection stopped.
        """
        session, task = session_of(request), task_of(request)
        record = self._service.state.session(session)
        self._api.find_task(session, task)
        follow = request.query_params.get("follow", "0") not in ("0", "false", "")
        cursor = request.headers.get("last-event-id", "o0e0")
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise invalid("Last-Event-ID", cursor[:100], "it has the form s<session>o<bytes>e<bytes>")
        number, out, err = match.groups()
        if number is not None and int(number) != record.session.number:
            raise NotFound(
                f"the followed session {session} is deleted, and another one has its id",
                field="session",
            )
        folder = self._task_logs / record.session.logs
        output = _TaskOutput(record.session.number, folder, task, int(out), err=int(err))
        return EventSourceResponse(self._follow(record, task, output, follow=follow), ping=PING_S)

    async def _follow(
        self, record: SessionRecord, task: int, output: _TaskOutput, *, follow: bool
    ) -> AsyncIterator[bytes]:
        """Yield the events of one log in chunks.

        The last event has the result of the task, if the session still exists.
        """
        ended = False
        while self._service.state.sessions.get(record.id) is record:
            # Checked before reading, so that exactly the output before the end is read.
            if not ended and (not follow or self._has_ended(record, task)):
                await asyncio.to_thread(output.stop_at_end)
                ended = True
            events = await asyncio.to_thread(output.read)
            for event in events:
                yield event
            if ended and not events:
                try:
                    body = self._api.find_task(record.id, task)
                except NotFound:  # deleted meanwhile
                    return
                yield _event("end", msgspec.json.encode(body))
                return
            if not events:
                await self._service.news.wait(record.id, LOG_POLL_S)

    def _has_ended(self, record: SessionRecord, task: int) -> bool:
        """Return whether the end of a task is stored.

        The store is read only once no executor has the task.
        """
        if self._service.tasks.unfinished(record.id, task):
            return False
        try:
            return self._api.find_task(record.id, task).state in _TERMINAL
        except NotFound:
            return True


class _TaskOutput:
    """Both output streams of one task as events, from the client's position on."""

    def __init__(self, session: int, folder: Path, task: int, out: int, err: int) -> None:
        self._session = session
        self._replaced: set[str] = set()
        self._readers = {
            "stdout": LogReader(folder, f"{task}.out", out),
            "stderr": LogReader(folder, f"{task}.err", err),
        }

    def stop_at_end(self) -> None:
        """Read only up to the current end."""
        for reader in self._readers.values():
            try:
                reader.stop_at_end()
            except NotALog:
                continue  # `read` reports it

    def read(self) -> list[bytes]:
        """Return the next chunk of each stream, if any."""
        events = []
        for stream, reader in self._readers.items():
            try:
                piece = reader.read(CHUNK)
            except NotALog as error:
                if stream not in self._replaced:
                    self._replaced.add(stream)
                    events.append(_event("note", f"{stream} is not shown: {error}".encode()))
                continue
            if piece.skipped:
                text = f"{piece.skipped} bytes of {stream} were dropped: a log has at most {format_bytes(LIMIT)}"
                events.append(_event("note", text.encode()))
            if piece.data:
                events.append(_event(stream, base64.b64encode(piece.data), self._cursor()))
        return events

    def _cursor(self) -> str:
        out, err = self._readers.values()
        return f"s{self._session}o{out.position}e{err.position}"


def _event(name: str, line: bytes, position: str = "") -> bytes:
    """Return one server-sent event with one line of data.

    It is written here because the library searches data for ends of lines.
    """
    head = f"id: {position}\r\nevent: {name}" if position else f"event: {name}"
    return b"%s\r\ndata: %s\r\n\r\n" % (head.encode(), line)
