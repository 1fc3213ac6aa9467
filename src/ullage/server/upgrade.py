"""Requests whose connection becomes a stream of bytes both ways: 101 Switching Protocols (RFC 9110, section 7.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ullage.model.error import InvalidRequest
from ullage.server.access import ADMITTED
from ullage.wire.terminal import PROTOCOL
from ullage.wire.terminal_stream import write_end

TAKE_OVER = "ullage.take-over"
"""A key of the ASGI scope: a function that writes the head of a response, and returns the connection as a stream."""

CHECK_S = 1.0
"""Seconds between two looks whether the caller is still admitted."""

_NOT_ADMITTED = "your token was revoked or has expired, or your role has changed"
_HEAD = f"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: {PROTOCOL}\r\n\r\n".encode()


class Stream(NamedTuple):
    """A connection as a stream of bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def require_upgrade(request: Request) -> None:
    """Check that a request asks for the stream, and that its connection can become one.

    Raises:
        InvalidRequest: it does not (`upgrade-needed`).

    """
    asked = request.headers.get("upgrade", "").lower() == PROTOCOL
    if not asked or TAKE_OVER not in request.scope:
        text = f"this route answers with a stream: send `Connection: Upgrade` and `Upgrade: {PROTOCOL}` over HTTP/1.1"
        raise InvalidRequest(text, code="upgrade-needed", field="upgrade")


class Upgraded(Response):
    """The response of a route whose connection `relay` uses from then on."""

    def __init__(self, relay: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        super().__init__(status_code=101)
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # as ASGI calls it
        """Take the connection over, and use it to its end, or to that of its caller's token or role."""
        stream: Stream = scope[TAKE_OVER](_HEAD)
        relay = asyncio.ensure_future(self._relay(stream.reader, stream.writer))
        try:
            while not relay.done():
                await asyncio.wait([relay], timeout=CHECK_S)
                if not relay.done() and not scope[ADMITTED]():
                    relay.cancel()
                    await asyncio.wait([relay])
                    await write_end(stream.writer, _NOT_ADMITTED)
                    return
            await relay
        finally:
            relay.cancel()
            stream.writer.close()
