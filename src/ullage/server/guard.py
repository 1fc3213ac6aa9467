"""Authentication by a bearer token, and checks of the origin of requests.

The `Host` check stops DNS rebinding, the `Origin` check stops other web pages. The key of the live page permits
reading only. It is not a cookie: a browser sends cookies to every port of a host, and another user may listen on one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ullage.model.error import InvalidRequest
from ullage.server.errors import error_response

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/", "/docs", "/enter", "/favicon.ico"})
_OPEN_FOLDER = "/static/"
"""The static files of the live page contain no data of this server."""

_READING = frozenset({"GET", "HEAD"})

UNAUTHENTICATED = "ullage.unauthenticated"
"""A key of the ASGI scope: true for a request without a valid token or key, so that its server may delay the next."""


class Guard:
    """ASGI middleware: refuses requests without a token or from other origins."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 401 or 403."""
        if scope["type"] == "http":
            request = Request(scope)
            authorized = self.is_authorized(request)
            scope[UNAUTHENTICATED] = not authorized
            refusal = self._refusal(request, authorized=authorized)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request, *, authorized: bool) -> Response | None:
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if host not in self._hosts:
            return _refuse(403, "wrong-host", f"host {host!r} is not served here; use {min(self._hosts)}")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            return _refuse(403, "wrong-origin", "requests from other web pages are refused")
        path = request.url.path
        if path in OPEN_PATHS or path.startswith(_OPEN_FOLDER) or authorized:
            return None
        if "authorization" in request.headers:
            return _refuse(401, "unauthorized", "this is not the token of this server (see the server's token file)")
        return _refuse(
            401, "unauthorized", "a token is needed: send `Authorization: Bearer TOKEN` (see the server's token file)"
        )

    def is_authorized(self, request: HTTPConnection) -> bool:
        """Return whether the request has the token or, for reading, the key of the page."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.encode(), self._token.encode())
        reading = scheme.lower() == "page" and request.scope["method"] in _READING
        return reading and hmac.compare_digest(given.encode(), page_key(self._token).encode())


def page_key(token: str) -> str:
    """Return the key of the page: derived from the token, so that it cannot replace it."""
    return hashlib.sha256(b"ullage page " + token.encode()).hexdigest()


def _refuse(status: int, code: str, message: str) -> Response:
    return error_response(InvalidRequest(message, code=code), status)
