"""A server of a Kubernetes front."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from starlette.types import ASGIApp

from ullage.bootstrap.address import Address
from ullage.bootstrap.http.bounds import cluster_bounds
from ullage.bootstrap.http.loop_thread import LoopThread
from ullage.bootstrap.http.server import BoundedServer
from ullage.bootstrap.listener import listen, url_host
from ullage.bootstrap.tls import TlsFiles

DRAIN_S = 5
"""Seconds in which requests from before the end are still answered."""

_T = TypeVar("_T")


class KubeServer(BoundedServer):
    """One application on its own address, on the current loop or its own. The process handles signals."""

    def __init__(self, app: ASGIApp, bind: str, tls: TlsFiles | None, loop_thread: LoopThread | None = None) -> None:
        super().__init__(app, cluster_bounds(), tls, drain_s=DRAIN_S)
        self._loop_thread = loop_thread
        address = Address.parse(bind, "bind")
        self.listener = listen(address.host, address.port, "name another one in [kube]")
        self.done: asyncio.Future[None]

    @property
    def url(self) -> str:
        """The address at which it listens."""
        host, port = self.listener.getsockname()[:2]
        return f"http{'s' if self.tls else ''}://{url_host(host)}:{port}"

    def start(self) -> None:
        """Start to serve; `done` completes when it has ended."""
        self.done = self._start(self.serve(sockets=[self.listener]))

    async def renew(self) -> bool:
        """Load changed certificates; return whether there were any. No handshake is in progress meanwhile."""
        return await self._start(self._renew())

    async def _renew(self) -> bool:
        return self.tls is not None and self.tls.renew()

    def _start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        return asyncio.ensure_future(work) if self._loop_thread is None else self._loop_thread.start(work)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def served(servers: dict[str, KubeServer]) -> AsyncIterator[dict[str, KubeServer]]:
    """Run the servers inside the block."""
    for server in servers.values():
        server.start()
    try:
        yield servers
    finally:
        for server in servers.values():
            server.should_exit = True
        await asyncio.gather(*(server.done for server in servers.values()), return_exceptions=True)
