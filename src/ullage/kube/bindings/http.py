"""Shared HTTP code of the bindings routes: callers, bounded bodies, one envelope, errors as plain text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ullage.kube.answering import Meter
from ullage.kube.body import read_body
from ullage.kube.client.lease import NotLeading
from ullage.model.compute import BoundCard
from ullage.model.compute_result import FailedCheck
from ullage.model.error import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    UllageError,
    VersionChanged,
)
from ullage.model.quantity import MAX_INT64, parse_count
from ullage.service.bindings import Terms
from ullage.service.bindings_snapshot import Caller, NamedApp
from ullage.service.pages import written
from ullage.wire.compute_request import MAX_BODY, check_text
from ullage.wire.compute_resources import ComputeDeviceBody, Envelope, allocation_bodies, failed_check
from ullage.wire.decoding import decode_body

CallerOf = Callable[[Request], Caller]
"""Return the caller that a trusted proxy or a token names. It raises `Forbidden` if there is none."""

Handler = Callable[[Request], Awaitable[Response]]

T = TypeVar("T", bound=msgspec.Struct)

_STATUS: dict[type[UllageError], int] = {
    NotLeading: 503,
    NotFound: 404,
    Forbidden: 403,
    InvalidRequest: 400,
    VersionChanged: 412,
    Conflict: 409,
}
_TOO_LARGE = "body-too-large"


class FailedResponse(Response):
    """A response for a failed check. `outcome` names the check."""

    outcome = ""


def routes(meter: Meter, rows: Iterable[tuple[str, str, Handler]]) -> list[Route]:
    """Return a route for each method, path and handler. The meter gets the name of the handler.

    An error is plain text with its status.
    """

    def route(method: str, path: str, handler: Handler) -> Route:
        verb = f"bindings-{getattr(handler, '__name__', 'call')}"

        async def respond(request: Request) -> Response:
            began, outcome = perf_counter(), "ok"
            try:
                for name, value in request.path_params.items():
                    check_text(value, name)
                answer = await handler(request)
            except UllageError as error:
                outcome = error.code
                text = f"{error.code}: {error.message}".encode("utf-8", "replace")
                answer = PlainTextResponse(text, _status(error))
            if isinstance(answer, FailedResponse):
                outcome = answer.outcome
            meter(verb, perf_counter() - began, outcome)
            return answer

        return Route(path, respond, methods=[method])

    return [route(*row) for row in rows]


def _status(error: UllageError) -> int:
    if error.code == _TOO_LARGE:
        return 413
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 503)


async def body_of(request: Request, kind: type[T]) -> T:
    """Decode the body of a request.

    Raises:
        InvalidRequest: it is too large, or does not match the schema.

    """
    body = await read_body(request, MAX_BODY)
    if len(body) > MAX_BODY:
        raise InvalidRequest(f"body: it is larger than {MAX_BODY} bytes", code=_TOO_LARGE)
    return decode_body(body.strip(), kind)


def named(request: Request, name: str) -> NamedApp:
    """Return the application of a request. Its owner is the caller unless the query names another."""
    owner, namespace = (check_text(request.query_params.get(key, ""), key) for key in ("owner", "namespace"))
    return NamedApp(check_text(name, "name", needed=True), owner, namespace)


def terms_of(request: Request) -> Terms:
    """Return the preconditions of a change: `Idempotency-Key`, and `If-Match` with the version that was read.

    Raises:
        InvalidRequest: a header is invalid.

    """
    key = check_text(request.headers.get("idempotency-key", ""), "Idempotency-Key")
    match = request.headers.get("if-match", "*").strip()
    if match == "*":
        return Terms(key)
    return Terms(key, parse_count(match.removeprefix("W/").strip('"'), "If-Match", MAX_INT64))


def found(data: Any, version: int | None = None) -> Response:
    """Return a response. Its version, if any, can be used in `If-Match` for a later change."""
    return _json(msgspec.json.encode(Envelope(data)), version)


async def long_found(data: Callable[[], Any], version: int | None = None) -> Response:
    """Return the same for data that a thread makes, of a snapshot."""
    return _json(await written(lambda: msgspec.json.encode(Envelope(data()))), version)


async def checked(answer: tuple[BoundCard, ...] | FailedCheck, caller: Caller) -> Response:
    """Return the rows of an application, or the check that failed."""
    return await failed(answer, caller) if isinstance(answer, FailedCheck) else found(allocation_bodies(answer))


async def failed(check: FailedCheck, caller: Caller, device: ComputeDeviceBody | None = None) -> Response:
    """Return a failed check, as far as the caller may see it. It is no protocol error and has status 200."""
    content = await written(lambda: msgspec.json.encode(failed_check(check, caller.sees, device)))
    answer = FailedResponse(content, media_type="application/json")
    answer.outcome = check.type
    return answer


def _json(content: bytes, version: int | None) -> Response:
    headers = None if version is None else {"ETag": f'"{version}"'}
    return Response(content, headers=headers, media_type="application/json")
