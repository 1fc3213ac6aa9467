"""Server-sent events: the live overview, and a task's output while it runs."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request

from ullage.model.error import NotFound, invalid
from ullage.model.name import check_name
from ullage.model.task import TaskState
from ullage.server.answers import Answers
from ullage.server.api import Api
from ullage.server.routes import Endpoint
from ullage.service.news import News
from ullage.service.service import Service

LIVE_GAP_S = 0.5
"""Least time between two overviews."""

LIVE_BEAT_S = 5.0
"""An overview is sent at least this often, so that ages on a live page stay true."""

LOG_POLL_S = 0.05
_CHUNK = 64 * 1024
_CURSOR = re.compile(r"o(\d+)e(\d+)")
_TERMINAL = frozenset(state.value for state in TaskState if state.terminal)


class Streams:
    """Handlers of endless answers. `task_logs` is where the engine writes what tasks print."""

    def __init__(self, service: Service, answers: Answers, handlers: Api, task_logs: Path) -> None:
        self._service = service
        self._answers = answers
        self._api = handlers
        self._task_logs = task_logs

    def endpoints(self) -> list[Endpoint]:
        """The routes of the streams."""
        return [
            Endpoint("GET", "/v1/live", self.live, "overviews as they change (server-sent events)", raw=True),
            Endpoint(
                "GET",
                "/v1/sessions/{session}/tasks/{task:int}/log",
                self.log,
                "a task's output (server-sent events: stdout, stderr, end)",
                query=("follow",),
                raw=True,
            ),
        ]

    async def live(self, _: Request) -> EventSourceResponse:
        """Overviews, at most two a second."""
        return EventSourceResponse(self._overviews())

    async def _overviews(self) -> AsyncIterator[dict[str, str]]:
        while True:
            # Listening begins before the picture is taken: what changes while it is sent is not missed.
            with self._service.news.listen(News.EVERYTHING) as heard:
                overview = self._answers.overview(time.time())
                yield {"event": "overview", "data": msgspec.json.encode(overview).decode()}
                await asyncio.sleep(LIVE_GAP_S)
                await heard(LIVE_BEAT_S)

    async def log(self, request: Request) -> EventSourceResponse:
        """What the task wrote, as base64; `Last-Event-ID` resumes where a lost connection stopped."""
        session, task = check_name("session", request.path_params["session"]), request.path_params["task"]
        self._service.state.session(session)
        self._api.find_task(session, task)
        follow = request.query_params.get("follow", "0") not in ("0", "false", "")
        cursor = request.headers.get("last-event-id", "o0e0")
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise invalid("Last-Event-ID", cursor, "it has the form o<bytes>e<bytes>")
        return EventSourceResponse(self._follow(session, task, follow, int(match.group(1)), int(match.group(2))))

    async def _follow(self, session: str, task: int, follow: bool, out: int, err: int) -> AsyncIterator[dict[str, str]]:
        folder = self._task_logs / session
        while True:
            try:
                body = self._api.find_task(session, task)
            except NotFound:
                return
            ended = body.state in _TERMINAL  # asked before reading: what is written before the end is read
            out, fresh_out = _read(folder / f"{task}.out", out)
            err, fresh_err = _read(folder / f"{task}.err", err)
            for name, data in (("stdout", fresh_out), ("stderr", fresh_err)):
                if data:
                    yield {"event": name, "id": f"o{out}e{err}", "data": base64.b64encode(data).decode()}
            if not (fresh_out or fresh_err):
                if ended or not follow:
                    yield {"event": "end", "data": msgspec.json.encode(body).decode()}
                    return
                await self._service.news.wait(session, LOG_POLL_S)


def _read(path: Path, offset: int) -> tuple[int, bytes]:
    """The next bytes and where they end; a file that became shorter began anew, and is read from its beginning."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < offset:
                offset = 0
            file.seek(offset)
            data = file.read(_CHUNK)
    except FileNotFoundError:
        return offset, b""
    return offset + len(data), data
