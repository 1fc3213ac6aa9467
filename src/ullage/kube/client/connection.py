"""Connects to an API server with a kubeconfig, or with the service account of a pod."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import httpx2
import yaml
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from yarl import URL

from ullage import __version__
from ullage.kube.client.changes import Call
from ullage.model.error import InvalidRequest

CONNECT_S = 5.0
_UNAUTHORIZED = 401
_LARGE = 1 << 20
"""Bytes of a body above which aiohttp sends it in pieces, so that other calls go on meanwhile."""

_NOT_SENT = aiohttp.ClientConnectionResetError, BrokenPipeError
"""Errors of a send: the server had closed the idle connection and has no complete call, so it is sent on another."""

_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A peer that vanished is noticed within a minute, also on a watch that waits."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return is_success(self.status)


class ApiConnection:
    """A server of HTTP with its address, certificates and credentials; proxies are not used, redirects not followed.

    `credentials` are asked for a header before the first request, and again when the server no longer accepts it.
    """

    def __init__(self, url: str, secured: ssl.SSLContext | None = None, credentials: httpx2.Auth | None = None) -> None:
        self._url, self._secured = url.rstrip("/"), secured
        self._authorization = _Authorization(credentials, url)
        self._opened: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._secured or True, socket_factory=_socket)
        headers = {"Accept": "application/json", "User-Agent": f"ullage/{__version__}"}
        cookies = aiohttp.DummyCookieJar()
        self._opened = aiohttp.ClientSession(connector=connector, headers=headers, cookie_jar=cookies, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, call: Call, within_s: float) -> HttpAnswer:
        """Return the response to a request, read to its end.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: there is no complete response within that time.

        """
        async with asyncio.timeout(within_s), await self._send(call, within_s) as answer:
            return HttpAnswer(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def stream(self, call: Call, within_s: float, silence_s: float) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with an unread body, and end its connection. `silence_s` is the longest time between parts.

        The server is not asked to confirm the end: aiohttp would not wait for that, and leave a socket open at exit.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: there is no response within that time, or its body breaks off.

        """
        async with asyncio.timeout(within_s):
            answer = await self._send(call, silence_s)
        try:
            yield answer
        finally:
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._opened is not None, "a connection is used within `async with`"
        return self._opened

    async def _send(self, call: Call, silence_s: float) -> aiohttp.ClientResponse:
        authorization = await self._authorization.header()
        answer = await self._try(call, authorization, silence_s)
        if answer.status != _UNAUTHORIZED:
            return answer
        renewed = await self._authorization.other_than(authorization)
        if renewed is None:
            return answer
        answer.close()
        return await self._try(call, renewed, silence_s)

    async def _try(self, call: Call, authorization: str | None, silence_s: float) -> aiohttp.ClientResponse:
        headers = {} if authorization is None else {"Authorization": authorization}
        if call.body:
            headers["Content-Type"] = call.media
        try:
            return await self._request(call, headers, silence_s)
        except aiohttp.ClientOSError as error:
            if not isinstance(error.__cause__, _NOT_SENT):
                raise
            return await self._request(call, headers, silence_s)

    async def _request(self, call: Call, headers: Mapping[str, str], silence_s: float) -> aiohttp.ClientResponse:
        return await self._session.request(
            call.method,
            URL(self._url + call.path, encoded=True),
            params=call.query,
            data=BytesIO(call.body) if len(call.body) > _LARGE else call.body or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s),
            allow_redirects=False,
        )


class _Authorization:
    """The header that the credentials of a user give. They are written for httpx2, as a conversation of requests."""

    def __init__(self, credentials: httpx2.Auth | None, url: str) -> None:
        self._credentials, self._url = credentials, url
        self._header: str | None = None
        self._renewing = asyncio.Lock()

    async def header(self) -> str | None:
        """Return the header; None without credentials."""
        if self._header is None and self._credentials is not None:
            flow = self._credentials.async_auth_flow(httpx2.Request("GET", self._url))
            self._header = (await anext(flow)).headers.get("Authorization")
            await flow.aclose()
        return self._header

    async def other_than(self, refused: str | None) -> str | None:
        """Return another header than one that was refused; None if there is none.

        Of several calls that were refused at once the first one renews the header for all.
        """
        if self._credentials is None:
            return None
        async with self._renewing:
            if self._header == refused:
                await self._renew(self._credentials)
        return None if self._header == refused else self._header

    async def _renew(self, credentials: httpx2.Auth) -> None:
        flow = credentials.async_auth_flow(httpx2.Request("GET", self._url))
        try:
            await anext(flow)
            self._header = (await flow.asend(httpx2.Response(_UNAUTHORIZED))).headers.get("Authorization")
        except StopAsyncIteration:
            return  # these credentials have only one header
        finally:
            await flow.aclose()


def is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - the statuses of success, by RFC 9110


def connect(kubeconfig: Path | None = None, context: str | None = None, master: str | None = None) -> ApiConnection:
    """Return a connection to one API server, with its address, certificates and credentials.

    Without a path: the service account of this pod, else the file in KUBECONFIG, else the user's kubeconfig. A token
    that is kept in a file is read again when the server no longer accepts the old one. `master` overrides the address.

    Raises:
        InvalidRequest: (`kube-config`) the configuration cannot be read, or is incomplete.

    """
    with _usable(kubeconfig):
        config = _config(kubeconfig, context)
        user = config.user or User()
        secured = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        return ApiConnection(master or config.cluster.server, secured, user_auth(user))


def namespace_of(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """Return the namespace of a context, or that of this pod; `default` if none is named.

    Raises:
        InvalidRequest: as `connect`.

    """
    with _usable(kubeconfig):
        return _config(kubeconfig, context).namespace or "default"


@contextmanager
def _usable(kubeconfig: Path | None) -> Iterator[None]:
    """Name the configuration in errors about it."""
    try:
        yield
    except (ConfigError, AttributeError, LookupError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        where = "the environment" if kubeconfig is None else str(kubeconfig)
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, (AttributeError, TypeError)):
            said = "a part of it, or all, is not of the form of a kubeconfig"
        message = f"kubeconfig: {where} cannot be used: {said}"
        raise InvalidRequest(message, code="kube-config", field="kubeconfig") from None


def _config(kubeconfig: Path | None, context: str | None) -> SingleConfig:
    found = KubeConfig.from_env() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
    config = found.get(context)
    assert config is not None, "only a default that is None comes back as None"
    return config


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    for level, option, value in _KEEP_ALIVE:
        opened.setsockopt(level, option, value)
    return opened
