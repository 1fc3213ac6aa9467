"""uvicorn within limits: this server accepts connections itself, so that every open connection is counted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.bootstrap.http.bounds import Bounds
from ullage.bootstrap.http.connection import BoundedConnection
from ullage.bootstrap.http.connections import ConnectionPhase, Connections
from ullage.bootstrap.http.plain_text import begins_plainly, refuse_plain_text
from ullage.bootstrap.tls import TlsFiles
from ullage.client.local_socket import peer_of
from ullage.wire.schema import ErrorBody

_SWEEP_S = 0.5
"""Seconds between two searches for connections that have waited too long."""

_ENDS = msgspec.json.encode(ErrorBody(code="unavailable", message="the server ends; ask again once it is back"))
_ENDS_HEAD = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_ENDS)),
    (b"connection", b"close"),
]

_NO_DESCRIPTOR_S = 0.1
"""Pause of a server that cannot open another connection."""


class BoundedServer(uvicorn.Server):
    """One application on its listening sockets; requests in progress at the end have `drain_s` to finish."""

    def __init__(self, app: ASGIApp, bounds: Bounds, tls: TlsFiles | None = None, *, drain_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                _ToleratingApp(app),
                log_config=None,
                log_level="error",  # an unknown caller must not fill the log
                access_log=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=drain_s,
            )
        )
        self.tls = tls
        self.bounds = bounds
        self._work: list[asyncio.Task[None]] = []
        self._arrivals: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections on the sockets, which listen already."""
        loop = asyncio.get_running_loop()
        connections = Connections(self.bounds, time.monotonic)
        for listener in sockets or []:
            listener.setblocking(False)
            self._work.append(loop.create_task(self._accept(listener, connections)))
        self._work.append(loop.create_task(_sweep(connections)))
        self.servers = []
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and finish requests in progress."""
        for task in (*self._work, *self._arrivals):
            task.cancel()
        await asyncio.gather(*self._work, *self._arrivals, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket, connections: Connections) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError:  # the caller disconnected, or this process has no descriptor left
                await asyncio.sleep(_NO_DESCRIPTOR_S)
                continue
            arriving = _Arriving(accepted)
            if not connections.admit(arriving):
                accepted.close()
                continue
            connections.wait(arriving, ConnectionPhase.HANDSHAKE)
            task = loop.create_task(self._establish(arriving, connections))
            self._arrivals.add(task)
            task.add_done_callback(self._arrivals.discard)

    async def _establish(self, arriving: _Arriving, connections: Connections) -> None:
        """Do the TLS handshake if there is one, and pass the connection to its protocol."""
        is_local = arriving.socket.family == socket.AF_UNIX
        peer = peer_of(arriving.socket).uid if is_local else None
        tls = None if is_local else self.tls

        def protocol() -> BoundedConnection:
            return BoundedConnection(
                self.config, self.server_state, self.lifespan.state, connections, arriving=arriving, peer=peer
            )

        loop = asyncio.get_running_loop()
        if not is_local:
            arriving.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if tls is not None and await begins_plainly(arriving.socket):
                await refuse_plain_text(arriving.socket)
                arriving.socket.close()
                return
            await loop.connect_accepted_socket(
                protocol,
                arriving.socket,
                ssl=None if tls is None else tls.context,
                ssl_handshake_timeout=None if tls is None else self.bounds.handshake_s,
            )
        except OSError:  # includes ssl.SSLError and TimeoutError: the caller did not complete the handshake
            arriving.socket.close()
        except asyncio.CancelledError:
            arriving.socket.close()
            raise
        finally:
            connections.remove(arriving)


class _ToleratingApp:
    """Wraps an application: an early disconnect or the end of a wait is not an error.

    A request that still waits when the server ends is answered with 503, so that its client repeats it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, receive, send_on)
        except asyncio.CancelledError:
            if begun:
                raise
            await send({"type": "http.response.start", "status": 503, "headers": _ENDS_HEAD})
            await send({"type": "http.response.body", "body": _ENDS})


class _Arriving:
    """An accepted connection without a protocol yet."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


async def _sweep(connections: Connections) -> None:
    while True:
        more = connections.sweep()
        await asyncio.sleep(0 if more else _SWEEP_S)
