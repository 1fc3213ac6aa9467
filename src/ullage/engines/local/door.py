"""Where workers come in: connections that must prove which executor they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from ullage.wire import frames

HELLO_S = 10.0
"""Seconds a connection may stay open without a word."""


class Guest(Protocol):
    """Who takes the frames of a connection that proved itself."""

    def on_frame(self, frame: frames.FromWorker) -> None:
        """One frame arrived."""

    def on_closed(self, fault: str | None) -> None:
        """The connection is closed; `fault` says what the worker did wrong on it, if it did."""


Admit = Callable[["WorkerLine", frames.Hello], Guest | None]
"""Who a peer is; None shows it the door."""


class WorkerLine(asyncio.Protocol):
    """One connection of a worker."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._reader = frames.FrameReader.from_worker()
        self._guest: Guest | None = None
        self._fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the hello, though not for ever."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting it
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Pass the frames on."""
        try:
            arrived = self._reader.feed(data)
        except frames.FrameError as error:
            self._refuse(str(error))
            return
        for frame in arrived:
            if self._guest is not None:
                self._guest.on_frame(frame)
            elif not self._greet(frame):
                return

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # as asyncio calls it
        """Tell the guest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._guest is not None:
            self._guest.on_closed(self._fault)

    def send(self, *frames_: frames.ToWorker) -> None:
        """Write frames; nothing happens on a connection that is closed or closing.

        Raises:
            FrameError: a frame is too large.

        """
        for frame in frames_:
            data = frames.encode(frame)
            if self._transport is not None and not self._transport.is_closing():  # uvloop's refuses to write then
                self._transport.write(data)

    def abort(self) -> None:
        """Close without more ado."""
        if self._transport is not None:
            self._transport.abort()

    def _greet(self, frame: frames.FromWorker) -> bool:
        guest = self._admit(self, frame) if isinstance(frame, frames.Hello) else None
        if guest is None:
            self.abort()
            return False
        if self._timer is not None:
            self._timer.cancel()
        self._reader.limit = frames.MAX_FRAME
        self._guest = guest
        guest.on_frame(frame)
        return True

    def _refuse(self, fault: str) -> None:
        self._fault = fault
        self.abort()
