"""The routes of the page of a cluster: its documents, the overview, and plans. They change nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.bootstrap.cluster_page.overview import write_overview
from ullage.bootstrap.cluster_page.plan import write_plan
from ullage.bootstrap.cluster_page.settings import ClusterSettings
from ullage.kube.answering import health_routes
from ullage.kube.body import read_body
from ullage.kube.front import Front
from ullage.kube.shared_page import CHEAP_S, REST, SharedPage
from ullage.model.error import InvalidRequest, UllageError
from ullage.server.errors import on_error, on_no_route
from ullage.web.pages import cluster_pages
from ullage.wire.cluster_view import MOST_PLAN_BYTES


def cluster_page(front: Front, settings: ClusterSettings, now: Callable[[], float] = time.time) -> Starlette:
    """Return the application. It answers everybody who can reach it, so its address decides who may read."""
    shared, plans = SharedPage(lambda: write_overview(front, settings, now)), Sparing()

    async def overview(request: Request) -> Response:
        return (await shared.get()).answer(request)

    async def plan(request: Request) -> Response:
        body = await read_body(request, MOST_PLAN_BYTES)
        if len(body) > MOST_PLAN_BYTES:
            raise InvalidRequest(f"body: it is larger than {MOST_PLAN_BYTES} bytes", code="body-too-large")
        return Response(await plans.run(lambda: write_plan(front, body)), media_type="application/json")

    routes = [
        *cluster_pages(),
        Route("/v1/overview", overview),
        Route("/v1/plan", plan, methods=["POST"]),
        *health_routes(lambda: front.extender.unready),
    ]
    return Starlette(routes=routes, exception_handlers={UllageError: on_error, HTTPException: on_no_route})


class Sparing:
    """Runs work one at a time. After long work the next waits, so that work takes at most a tenth of the time."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._pause = clock, pause
        self._turn = asyncio.Lock()
        self._not_before = float("-inf")

    async def run(self, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return what the work returns."""
        async with self._turn:
            await self._pause(max(0.0, self._not_before - self._clock()))
            began = self._clock()
            try:
                return await work()
            finally:
                took = self._clock() - began
                self._not_before = self._clock() + (REST * took if took > CHEAP_S else 0.0)
