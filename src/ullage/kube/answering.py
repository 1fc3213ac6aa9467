"""Health endpoints of the HTTP fronts, and the meter of their responses."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Meter = Callable[[str, float, str], None]
"""Called for each response with the verb, the duration in seconds, and `ok` or the error code."""


def no_meter(_verb: str, _seconds: float, _outcome: str) -> None:
    """Measure nothing."""


def health_routes(unready: Callable[[], str]) -> list[Route]:
    """Return `/healthz`, and `/readyz` with the reason why requests cannot be answered now ("" if they can)."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok")

    return [Route("/healthz", alive), readiness_route("/readyz", unready)]


def readiness_route(path: str, unready: Callable[[], str]) -> Route:
    """Return a route that answers 200, or 503 with a reason."""

    async def ready(_: Request) -> Response:
        why = unready()
        return PlainTextResponse(why or "ok", 503 if why else 200)

    return Route(path, ready)
