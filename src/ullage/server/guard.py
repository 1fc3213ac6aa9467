"""Who may come in: a bearer token, asked for by default, and only from where this server is meant to be.

The `Host` check stops DNS rebinding, the `Origin` check stops other web pages; a cookie (set for the
live page) opens reading only, so no page can make a browser change anything.
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

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/enter", "/static/enter.js", "/static/style.css", "/static/icon.svg"})
_READING = frozenset({"GET", "HEAD"})


class Guard:
    """ASGI middleware: refuses what has no token or comes from elsewhere."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 401 or 403."""
        if scope["type"] == "http":
            refusal = self._refusal(Request(scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if host not in self._hosts:
            return _refuse(403, "wrong-host", f"host {host!r} is not served here; use {min(self._hosts)}")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            return _refuse(403, "wrong-origin", "requests from other web pages are refused")
        if request.url.path in OPEN_PATHS or self.knows(request):
            return None
        return _refuse(
            401, "unauthorized", "a token is needed: send `Authorization: Bearer TOKEN` (see the server's token file)"
        )

    def knows(self, request: HTTPConnection) -> bool:
        """Whether the request carries the token, or for reading the page's cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), self._token.encode()):
            return True
        reading = request.scope["method"] in _READING
        name, value = page_cookie(self._token)
        return reading and hmac.compare_digest(request.cookies.get(name, ""), value)


def page_cookie(token: str) -> tuple[str, str]:
    """Name and value of the page's cookie: derived from the token, so that it cannot be used in its place.

    The name differs from server to server, for a browser sends a host's cookies to all of its ports.
    """
    digest = hashlib.sha256(b"ullage page " + token.encode()).hexdigest()
    return f"ullage-{digest[:8]}", digest[8:]


def _refuse(status: int, code: str, message: str) -> Response:
    return error_response(InvalidRequest(message, code=code), status)
