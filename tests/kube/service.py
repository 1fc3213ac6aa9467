"""One address for several processes, as a Service has: new connections go to the one that is ready."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Self

import httpx2

from tests.kube.live_front import LiveFront

_LOOK_S, _PROBE_S = 0.1, 0.5


class Service:
    """Connections that are there stay where they are, though the process behind them is stopped."""

    def __init__(self, fronts: Callable[[], Sequence[LiveFront]], port: int = 0) -> None:
        self._fronts, self.port = fronts, port
        self._ready: int | None = None
        """The port of the process that is ready."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        self._start(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self) -> None:
        async with httpx2.AsyncClient(timeout=_PROBE_S, trust_env=False) as http:
            while True:
                self._ready = await self._look(http)
                await asyncio.sleep(_LOOK_S)

    async def _look(self, http: httpx2.AsyncClient) -> int | None:
        for front in self._fronts():
            if await _is_ready(http, front):
                return int(front.url("extender").rsplit(":", 1)[1])
        return None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ready is None:
            writer.close()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._ready)
        except OSError:
            writer.close()
            return
        self._start(_pump(reader, there_writer))
        self._start(_pump(there_reader, writer))


async def _is_ready(http: httpx2.AsyncClient, front: LiveFront) -> bool:
    if not front.is_up():
        return False
    try:
        return (await http.get(f"{front.url('metrics')}/readyz")).status_code == 200
    except httpx2.HTTPError:
        return False


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(65536):
            sink.write(piece)
            await sink.drain()
    except OSError:
        pass
    sink.close()
