"""The HTTP application: routes, errors, guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ullage.model.error import UllageError
from ullage.server import metrics
from ullage.server.access import Authorizer
from ullage.server.allocations import AllocationApi, Refused, on_refused
from ullage.server.answers import Answers
from ullage.server.api import ServerApi
from ullage.server.callers import Callers
from ullage.server.consolidation import ConsolidationApi
from ullage.server.details import DetailsApi
from ullage.server.errors import on_error, on_fault, on_no_route
from ullage.server.gangs import GangApi
from ullage.server.guard import Guard, require_declared
from ullage.server.history import HistoryApi
from ullage.server.openapi import openapi
from ullage.server.people import PeopleApi
from ullage.server.pods import PodApi
from ullage.server.quotas import QuotaApi
from ullage.server.room import RoomGuard
from ullage.server.routes import endpoints_of
from ullage.server.searches import Searches
from ullage.server.starts import StartsApi
from ullage.server.streams import Streams
from ullage.server.task_logs import TaskLogs
from ullage.server.terminals import TerminalApi
from ullage.service.pages import written
from ullage.service.service import UllageService
from ullage.wire.overview import ServerBody

FRONTS = (
    ServerApi,
    DetailsApi,
    AllocationApi,
    QuotaApi,
    GangApi,
    ConsolidationApi,
    PodApi,
    HistoryApi,
    StartsApi,
    Streams,
    TaskLogs,
    TerminalApi,
    PeopleApi,
)
"""The classes whose methods declare the routes."""

_ON_ERRORS: dict[Any, Any] = {
    Refused: on_refused,
    HTTPException: on_no_route,
    Exception: on_fault,
}


@cache
def describe_api(version: str) -> dict[str, Any]:
    """Return the OpenAPI document of a server."""
    return openapi(endpoints_of(*FRONTS), version)


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


def make_app(
    service: UllageService,
    server: ServerBody,
    notes: dict[str, str],
    token: str,
    hosts: Iterable[str],
    task_logs: Path,
    shut_down: Callable[[str], None],
    pages: Iterable[BaseRoute] = (),
) -> Starlette:
    """Return the application over one service.

    `hosts` are the host names it accepts, `pages` the web front end.
    """
    answers, authorizer = Answers(service, server, notes), Authorizer(service)
    searches = Searches()
    requests = AllocationApi(service, searches)
    fronts = (
        ServerApi(service, answers, shut_down),
        DetailsApi(service, answers),
        requests,
        QuotaApi(service),
        GangApi(service, requests),
        ConsolidationApi(service, searches),
        PodApi(service),
        HistoryApi(service),
        StartsApi(service),
        Streams(service, answers),
        TaskLogs(service, task_logs),
        TerminalApi(service),
        PeopleApi(service, lambda: accesses),
    )
    endpoints = [(endpoint, front) for front in fronts for endpoint in endpoints_of(type(front))]
    accesses = [(endpoint.id, endpoint.method, endpoint.access) for endpoint, _ in endpoints]

    async def on_own_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, UllageError)
        return await on_error(request, authorizer.shown_error(request, error))

    async def scrape(_: Request) -> Response:
        return Response(await written(metrics.page(service, answers)), media_type=CONTENT_TYPE_LATEST)

    async def describe(_: Request) -> Response:
        document = await written(lambda: msgspec.json.encode(describe_api(server.version)))
        return Response(document, media_type="application/json")

    routes = [
        *(endpoint.route(front, authorizer.check) for endpoint, front in endpoints),
        Route("/metrics", scrape),
        Route("/v1/openapi.json", describe),
        Route("/healthz", _alive),
        Route("/readyz", _alive),
        *pages,
    ]
    require_declared(route.path for route in routes[len(endpoints) :] if isinstance(route, Route))
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, callers=Callers(token, service), hosts=frozenset(hosts)),
            Middleware(RoomGuard, service=service),
        ],
        exception_handlers={UllageError: on_own_error, **_ON_ERRORS},
    )
