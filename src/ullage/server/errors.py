"""Errors as HTTP responses: one body, one status per kind."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ullage.model.error import Conflict, DiskFull, Forbidden, InvalidRequest, NotFound, UllageError, Unavailable
from ullage.wire.schema import ErrorBody

_SHOWN = 100
_STATUSES = (
    (NotFound, 404),
    (Forbidden, 403),
    (InvalidRequest, 400),
    (Conflict, 409),
    (DiskFull, 507),
    (Unavailable, 503),
)
"""The status of each kind of error. The first kind that applies counts, so a kind comes after its special cases."""

_UNROUTED = {
    404: ("no-such-route", "no such route; `/v1/openapi.json` lists the routes"),
    405: ("method-not-allowed", "the route does not accept this method; the header Allow lists the accepted ones"),
}


def status_of(error: UllageError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def error_response(error: UllageError, status: int | None = None) -> Response:
    """Return the response to a failed request."""
    body = ErrorBody(code=error.code, message=error.message, field=error.field)
    return Response(msgspec.json.encode(body), status or status_of(error), media_type="application/json")


async def on_error(_: Request, error: Exception) -> Response:
    """Handle our errors for Starlette."""
    assert isinstance(error, UllageError)
    return error_response(error)


async def on_no_route(request: Request, error: Exception) -> Response:
    """Handle a request without a route, or with another method than that of the route, for Starlette."""
    assert isinstance(error, HTTPException)
    code, text = _UNROUTED.get(error.status_code, (f"http-{error.status_code}", error.detail))
    path = request.url.path if len(request.url.path) <= _SHOWN else f"{request.url.path[:_SHOWN]}..."
    body = ErrorBody(code=code, message=f"{request.method} {path}: {text}")
    return Response(msgspec.json.encode(body), error.status_code, error.headers, media_type="application/json")


async def on_fault(_: Request, error: Exception) -> Response:
    """Handle an unexpected error for Starlette; it is logged as well."""
    body = ErrorBody(code="internal", message=f"the server failed ({type(error).__name__}); see its log")
    return Response(msgspec.json.encode(body), 500, media_type="application/json")
