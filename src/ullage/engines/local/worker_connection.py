"""The connections of workers. Each must prove which executor it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from ullage.wire import frames

HELLO_S = 10.0
"""Seconds a connection may stay open without a handshake."""


class FrameHandler(Protocol):
    """Handles the frames of an authenticated connection."""

    def on_frame(self, frame: frames.FromWorker) -> None:
        """Handle one frame."""

    def on_closed(self, fault: str | None) -> None:
        """Handle the end of the connection; `fault` describes a violation of the protocol by the worker."""


Authenticate = Callable[["WorkerConnection", frames.Hello], FrameHandler | None]
"""Return the handler of the connection; None closes it."""


class WorkerConnection(asyncio.Protocol):
    """One connection of a worker."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate
        self._reader = frames.FrameReader.from_worker()
        self._handler: FrameHandler | None = None
        self._fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting it
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            arrived = self._reader.feed(data)
        except frames.FrameError as error:
            self._fault = str(error)
            self.abort()
            return
        for frame in arrived:
            if self._handler is not None:
                self._handler.on_frame(frame)
            elif not self._handshake(frame):
                return

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # as asyncio calls it
        if self._timer is not None:
            self._timer.cancel()
        if self._handler is not None:
            self._handler.on_closed(self._fault)

    def send(self, *frames_: frames.ToWorker) -> None:
        """Write frames, unless the connection is closed or closing.

        Raises:
            FrameError: a frame is too large.

        """
        for frame in frames_:
            data = frames.encode(frame)
            if self._transport is not None and not self._transport.is_closing():  # uvloop's refuses to write then
                self._transport.write(data)

    def abort(self) -> None:
        """Close the connection without waiting for unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def _handshake(self, frame: frames.FromWorker) -> bool:
        handler = self._authenticate(self, frame) if isinstance(frame, frames.Hello) else None
        if handler is None:
            self.abort()
            return False
        if self._timer is not None:
            self._timer.cancel()
        self._reader.limit = frames.MAX_FRAME
        self._handler = handler
        handler.on_frame(frame)
        return True
