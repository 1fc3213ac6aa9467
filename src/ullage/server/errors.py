"""Errors as HTTP answers: one body, one status per kind."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ullage.model.error import Conflict, Forbidden, InvalidRequest, NotFound, UllageError, Unavailable
from ullage.wire.api import ErrorBody


def status_of(error: UllageError) -> int:
    """404 for what does not exist, 403 for what is not the caller's, 400 for other bad input, 409, 503 for us."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Forbidden):
        return 403
    if isinstance(error, InvalidRequest):
        return 400
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def error_response(error: UllageError, status: int | None = None) -> Response:
    """The answer to a failed request."""
    body = ErrorBody(code=error.code, message=error.message, field=error.field)
    return Response(msgspec.json.encode(body), status or status_of(error), media_type="application/json")


async def on_error(_: Request, error: Exception) -> Response:
    """Starlette's handler for our errors."""
    assert isinstance(error, UllageError)
    return error_response(error)
