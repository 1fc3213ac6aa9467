"""A network between a client and a server that can be cut, held up, or lost without a word."""

import asyncio
from typing import Self


class Proxy:
    """Forwards connections to a port of this machine; runs in the event loop of the test."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection."""
        for end in self._ends:
            end.transport.abort()

    def lose(self) -> None:
        """From now on nothing gets through on any connection, and no connection is closed."""
        self._flows.clear()

    def find(self) -> None:
        """New connections work again; the lost ones stay lost, as after a router forgot them."""
        for task in self._tasks:
            task.cancel()
        self._flows.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(65536):
                await self._flows.wait()
                sink.write(piece)
                await sink.drain()
        except OSError:
            pass
        sink.close()
