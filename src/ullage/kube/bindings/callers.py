"""Identifies callers of the bindings API: by a token that the API server reviews, or by a trusted proxy.

A proxy is trusted if every client has shown a certificate of its CA. Then `X-Remote-User` and `X-Remote-Group` name the
caller, as for an aggregated API server of Kubernetes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Create
from ullage.kube.client.kinds import TOKEN_REVIEWS
from ullage.kube.client.lease import clock_s
from ullage.kube.recent import Recent
from ullage.model.error import Forbidden, UllageError
from ullage.service.bindings_snapshot import Caller

CACHED_S = 60.0
"""Seconds for which the review of a token is cached."""

AT_ONCE = 8
"""Maximum number of concurrent token reviews, however many unknown callers connect."""

_MOST = 1024
_LONGEST = 16_384
_STATE = "caller"


@dataclass(frozen=True, slots=True)
class Admins:
    """The users and groups that may act for others."""

    users: Collection[str] = ()
    groups: Collection[str] = ()

    def has(self, user: str, groups: Iterable[str]) -> bool:
        """Return whether a user or one of the groups is an admin. `user` is the full name."""
        return user in self.users or not set(groups).isdisjoint(self.groups)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class Tokens:
    """Identifies callers by bearer tokens, which the API server reviews. `prefix` is cut off the names of users.

    With a prefix, only users who have it, and admins, are answered: the short name of one user could be the full name
    of another.
    """

    def __init__(self, api: KubeApi, admins: Admins, *, prefix: str = "", clock: Callable[[], float] = clock_s) -> None:
        self._api, self._admins, self._prefix, self._clock = api, admins, prefix, clock
        self._known: Recent[str, tuple[float, Caller]] = Recent(_MOST)
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def caller(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            Forbidden: there is no token, or the API server does not know it. UllageError: it does not answer.

        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip() or len(token) > _LONGEST:
            raise Forbidden("Authorization: a bearer token of the cluster is needed", code="unauthenticated")
        name = hashlib.sha256(token.encode()).hexdigest()
        async with self._asking if self._of(name) is None else nullcontext():
            return self._of(name) or await self._ask(name, token.strip())

    def _of(self, name: str) -> Caller | None:
        """Return the cached caller for the digest of a token."""
        until, found = self._known.get(name, (0.0, None))
        return found if self._clock() < until else None

    async def _ask(self, name: str, token: str) -> Caller:
        now = self._clock()
        answer = await self._api.write(Create(TOKEN_REVIEWS, {"spec": {"token": token}}))
        status = msgspec.json.decode(answer, type=_Review).status
        if not status.authenticated or not status.user.username:
            raise Forbidden("Authorization: the cluster does not know this token", code="unauthenticated")
        found = self._named(status.user)
        self._known[name] = now + CACHED_S, found
        return found

    def _named(self, user: _User) -> Caller:
        full, admin = user.username, self._admins.has(user.username, user.groups)
        short = full.removeprefix(self._prefix)
        if self._prefix and not admin and short in ("", full):
            fix = f"users whose names begin with {self._prefix!r}, and admins, are answered here"
            raise Forbidden(f"Authorization: this is the token of {full!r}; {fix}", code="unauthenticated")
        return Caller(short or full, admin)


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """Identifies callers by the headers of a proxy. Only for servers that no other client can reach."""

    admins: Admins

    async def caller(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            Forbidden: the proxy does not name one.

        """
        user = request.headers.get("x-remote-user", "")
        if not user:
            raise Forbidden("X-Remote-User: the proxy must name the user", code="unauthenticated")
        return Caller(user, self.admins.has(user, request.headers.getlist("x-remote-group")))


class Authentication:
    """ASGI middleware that identifies the caller before the application. `caller_of` returns it inside."""

    def __init__(self, app: ASGIApp, callers: Tokens | ProxyHeaders) -> None:
        self._app, self._callers = app, callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request if the caller is known. Else respond 401, or 503 if this cannot be determined."""
        if scope["type"] == "http":
            try:
                caller = await self._callers.caller(Request(scope))
            except UllageError as error:
                status = 401 if isinstance(error, Forbidden) else 503
                await PlainTextResponse(f"{error.code}: {error.message}", status)(scope, receive, send)
                return
            scope = {**scope, "state": {**scope.get("state", {}), _STATE: caller}}
        await self._app(scope, receive, send)


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope["state"][_STATE]
    return caller
