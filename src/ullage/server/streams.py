"""Server-sent events: the live overview."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request

from ullage.model.identity import Role
from ullage.server.access import Authorizer, needs
from ullage.server.answers import Answers
from ullage.server.parameters import count_of
from ullage.server.routes import encoded, route
from ullage.server.task_logs import PING_S
from ullage.service.news import News
from ullage.service.service import UllageService

LIVE_GAP_S = 0.5
"""The least time between two overviews."""

LIVE_BEAT_S = 5.0
"""The most seconds between two overviews, so that ages on a live page are correct."""


class Streams:
    """Handlers of streams."""

    def __init__(self, service: UllageService, answers: Answers) -> None:
        self._service = service
        self._answers = answers

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
