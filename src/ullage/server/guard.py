"""Authentication, and checks of the origin of requests.

The `Host` check stops DNS rebinding, the `Origin` check stops other web pages. The key of the live page permits
reading only. It is not a cookie: a browser sends cookies to every port of a host, and another user may listen on one.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.model.error import InvalidRequest
from ullage.model.identity import Identity
from ullage.server.access import ADMITTED, IDENTITY
from ullage.server.callers import Callers, NotAdmitted
from ullage.server.errors import error_response

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/", "/docs", "/enter", "/favicon.ico"})
_OPEN_FOLDER = "/static/"
"""The static files of the live page contain no data of this server."""

_EVERY_ROLE = frozenset({"/metrics", "/v1/openapi.json", "/v1/admit"})
"""Paths without an `@route` that each known caller may use."""

UNAUTHENTICATED = "ullage.unauthenticated"
"""A key of the ASGI scope: true for a request without a valid token or key, so that its server may delay the next."""


def is_open(path: str) -> bool:
    """Return whether a path is answered to everyone."""
    return path in OPEN_PATHS or path.startswith(_OPEN_FOLDER)


def require_declared(paths: Iterable[str]) -> None:
    """Check that the access to each path without an `@route` is declared here.

    Raises:
        TypeError: one is not, so that the server must not start.

    """
    if unknown := sorted(path for path in paths if not is_open(path) and path not in _EVERY_ROLE):
        raise TypeError(f"nothing says who may use {', '.join(unknown)}: use @route, or add it to `server/guard.py`")


class Guard:
    """ASGI middleware: refuses requests of unknown callers or from other origins, and notes who asks."""

    def __init__(self, app: ASGIApp, callers: Callers, hosts: Iterable[str]) -> None:
        self._app = app
        self._callers = callers
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 401 or 403."""
        if scope["type"] == "http":
            request = Request(scope)
            caller = self._callers.identify(request)
            scope[UNAUTHENTICATED] = not isinstance(caller, Identity)
            refusal = self._refusal(request, caller)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            if isinstance(caller, Identity):
                scope[IDENTITY] = caller
                scope[ADMITTED] = lambda: self._callers.identify(request) == caller
                send = _WhileAdmitted(request, self._callers, send).send
        await self._app(scope, receive, send)

    def _refusal(self, request: Request, caller: Identity | NotAdmitted) -> Response | None:
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if host not in self._hosts:
            served = ", ".join(sorted(self._hosts))
            text = f"host {host!r} is not served here; use one of {served}, or name it in the setting server.names"
            return _refuse(NotAdmitted(403, "wrong-host", text))
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            return _refuse(NotAdmitted(403, "wrong-origin", "requests from other web pages are refused"))
        return None if is_open(request.url.path) or isinstance(caller, Identity) else _refuse(caller)


class _WhileAdmitted:
    """Sends a response while its caller is who it was: until the token ends, or the role changes.

    What was read for a caller who is not admitted any more is not sent, also after a long wait. A stream sends
    something every few seconds, so it ends soon; its client has to ask again, and learns why.
    """

    def __init__(self, request: Request, callers: Callers, send: Send) -> None:
        self._request, self._callers, self._send = request, callers, send
        self._ended = False

    async def send(self, message: Message) -> None:
        """Send a message, or the end of the response."""
        if self._ended:
            return
        if message["type"] == "http.response.start" and self._request.method == "GET":
            now = self._callers.identify(self._request)
            if isinstance(now, NotAdmitted):
                self._ended = True
                await _refuse(now)(self._request.scope, self._request.receive, self._send)
                return
        if message.get("more_body") and not self._request.scope[ADMITTED]():
            self._ended = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)


def _refuse(refusal: NotAdmitted) -> Response:
    return error_response(InvalidRequest(refusal.message, code=refusal.code), refusal.status)
