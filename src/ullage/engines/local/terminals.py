"""Programs whose input and output go through the server: their hosts in executors, and the clients of those.

A host (`host/terminal.py`) connects to a socket of the engine and proves which program it is to run. The engine
passes frames on, one at a time, and waits for who does not read. A program has one client at a time: the last one that
came.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ullage.client.local_socket import peer_of
from ullage.engines.local.executor import LocalExecutor
from ullage.model.error import Conflict
from ullage.wire.terminal import OF_CLIENTS, BrokenStreamError, Frame, FrameKind, encode
from ullage.wire.terminal_stream import read_frame, write_end, write_frame

HOST_S = 30.0
"""Seconds within which a host connects that was started."""

_FIRST_FRAME_S = 10.0
"""Seconds within which a host, or a client, sends its first frame."""

_LAST_S = 1.0
"""Seconds in which a client that is taken off still gets the reason."""


class HostedTerminal:
    """One program in an executor, and its present client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, executor: LocalExecutor) -> None:
        self._reader, self._writer, self._executor = reader, writer, executor
        self._client: asyncio.StreamWriter | None = None
        self._ended = asyncio.Event()

    def send_order(self, order: bytes) -> None:
        """Send the host what it is to run."""
        self._writer.write(encode(FrameKind.ORDER, order))

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client with the program until one of them ends. An earlier client is taken off."""
        first = await _first_frame(reader)
        if first is None:
            if self._client is None:
                self._send_lost()
            return
        if self._client is not None:
            _take_off(self._client)
        self._client = writer
        if self._ended.is_set():
            await write_end(writer, self._end_reason())
            return
        self._writer.write(encode(FrameKind.ATTACHED))
        copying = asyncio.create_task(self._copy_input(first, reader, writer))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({copying, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (copying, ended):
                task.cancel()
            await asyncio.gather(copying, ended, return_exceptions=True)
            self._leave(writer)

    async def serve(self) -> None:
        """Pass the output on until the host ends."""
        exited = False
        try:
            while (frame := await read_frame(self._reader)) is not None:
                exited = exited or frame.kind is FrameKind.EXIT
                if self._client is not None:
                    await write_frame(self._client, frame)
        finally:
            self._writer.close()
            if self._client is not None and not exited:
                await write_end(self._client, self._end_reason())
            self._ended.set()

    def _end_reason(self) -> str:
        reason = self._executor.known_exit_reason
        return "its host was killed, and the program with it" if reason is None else f"its executor ended: {reason}"

    def _leave(self, writer: asyncio.StreamWriter) -> None:
        if self._client is writer:
            self._client = None
            self._send_lost()

    def _send_lost(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(FrameKind.LOST))

    async def _copy_input(self, first: Frame, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame: Frame | None = first
        while frame is not None and self._client is writer:
            self._writer.write(encode(*frame))
            if frame.kind is FrameKind.DETACH:
                self._client = None
                return
            await self._writer.drain()
            frame = await _read_client(reader)


class _Hello(msgspec.Struct):
    """Who connects: what the supervisor was to start, by its secret, or the host of a task."""

    secret: str = ""
    executor: str = ""
    task: int = 0


@dataclass(slots=True)
class _Started:
    """A host that the supervisor was to start in an executor. `arrival` is its terminal, once it has connected."""

    secret: str
    executor: LocalExecutor
    arrival: asyncio.Future[HostedTerminal]


class HostedTerminals:
    """All programs of one engine with clients. `find` returns an executor by its name."""

    def __init__(self, find: Callable[[str], LocalExecutor | None]) -> None:
        self._find = find
        self._server: asyncio.Server | None = None
        self._started: dict[str, _Started] = {}  # by id
        self._names: dict[str, list[str]] = {}  # the ids by executor
        self._of_tasks: dict[tuple[str, int], HostedTerminal] = {}

    async def open(self, path: Path) -> None:
        """Accept hosts at a path."""
        self._server = await asyncio.start_unix_server(self._accept, str(path))

    async def close(self) -> None:
        """Accept no more hosts. The present ones have ended with their executors."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def of_task(self, executor: str, task: int) -> HostedTerminal | None:
        """Return the terminal of a task that was started with one."""
        return self._of_tasks.get((executor, task))

    def take_started(self, executor: str) -> list[str]:
        """Return the ids of all hosts that were started in an executor since the last call.

        Those that have ended are among them: their programs may have left others behind.
        """
        return self._names.pop(executor, [])

    def end_all(self, reason: str) -> None:
        """Handle the end of the supervisor, which takes all its hosts along."""
        self._names.clear()
        for name in list(self._started):
            self.ended(name, reason)

    def expect(self, executor: LocalExecutor, name: str) -> str:
        """Return the secret with which a host is to connect; `name` is its id."""
        secret = secrets.token_hex(32)
        self._names.setdefault(executor.name, []).append(name)
        self._started[name] = _Started(secret, executor, asyncio.get_running_loop().create_future())
        return secret

    async def arrival(self, name: str) -> HostedTerminal:
        """Return the terminal of a host once it has connected.

        Raises:
            Conflict: the host could not be started (`exec-failed`).

        """
        try:
            return await asyncio.wait_for(self._started[name].arrival, HOST_S)
        except TimeoutError:
            raise _not_started(f"its host did not connect within {HOST_S:g} s") from None

    def ended(self, name: str, message: str) -> None:
        """Handle the end of a host; the message is what it printed."""
        started = self._started.pop(name, None)
        if started is not None and not started.arrival.done():
            started.arrival.set_exception(_not_started(message.strip() or "its host was killed"))
            started.arrival.exception()  # the request that waited for it may be gone

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, BrokenStreamError, msgspec.MsgspecError, TimeoutError):  # what connected is no host of ours
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await asyncio.wait_for(read_frame(reader), _FIRST_FRAME_S)
        if frame is None or frame.kind is not FrameKind.HELLO:
            raise BrokenStreamError("the first frame is no HELLO")
        hello = msgspec.json.decode(frame.data, type=_Hello)
        if hello.secret:
            await self._serve_started(hello.secret, reader, writer)
        else:
            await self._serve_task(hello.executor, hello.task, reader, writer)

    async def _serve_started(self, given: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for started in self._started.values():
            if hmac.compare_digest(started.secret.encode(), given.encode()) and not started.arrival.done():
                terminal = HostedTerminal(reader, writer, started.executor)
                started.arrival.set_result(terminal)
                await terminal.serve()
                return
        raise BrokenStreamError("no host with this secret is expected")

    async def _serve_task(
        self, name: str, task: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve the terminal of a task, whose worker has connected: the kernel names the process."""
        executor = self._find(name)
        if executor is None or peer_of(writer.get_extra_info("socket")).pid != executor.pid:
            raise BrokenStreamError("another process than the worker of the executor has connected")
        terminal = self._of_tasks[name, task] = HostedTerminal(reader, writer, executor)
        try:
            await terminal.serve()
        finally:
            if self._of_tasks.get((name, task)) is terminal:
                del self._of_tasks[name, task]


def _not_started(reason: str) -> Conflict:
    return Conflict(f"the program was not started: {reason}", code="exec-failed")


async def _first_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Return the first frame of a client; None if it sends none in time."""
    try:
        return await asyncio.wait_for(_read_client(reader), _FIRST_FRAME_S)
    except TimeoutError:
        return None


async def _read_client(reader: asyncio.StreamReader) -> Frame | None:
    """Return the next frame of a client; None if it is gone, or sends anything else."""
    try:
        frame = await read_frame(reader)
    except BrokenStreamError:
        return None
    return frame if frame is not None and frame.kind in OF_CLIENTS else None


def _take_off(client: asyncio.StreamWriter) -> None:
    """Close the connection of a client, which may not read any more."""
    client.write(encode(FrameKind.TAKEN))
    client.close()
    asyncio.get_running_loop().call_later(_LAST_S, client.transport.abort)
