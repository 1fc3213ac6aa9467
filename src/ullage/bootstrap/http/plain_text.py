"""The answer to plain HTTP on a port of HTTPS: what is wrong, and what to write instead."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import msgspec

from ullage.wire.schema import ErrorBody

_HANDSHAKE = b"\x16"
"""The first byte of TLS (RFC 8446, section 5.1): a record of a handshake."""

_PIECE, _MOST_DRAINED = 65_536, 1 << 20
_BODY = msgspec.json.encode(
    ErrorBody(code="https-needed", message="this port speaks HTTPS, and the request is plain HTTP: write https://")
)
_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


async def begins_plainly(connection: socket.socket) -> bool:
    """Return whether a caller begins with other bytes than a TLS handshake. They are left in the socket."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, wake)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    with contextlib.suppress(OSError):
        return connection.recv(1, socket.MSG_PEEK) not in (b"", _HANDSHAKE)
    return False


async def refuse_plain_text(connection: socket.socket) -> None:
    """Answer a request in plain HTTP. Its rest is read: with unread bytes a close would discard the answer."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        await loop.sock_sendall(connection, _ANSWER)
        connection.shutdown(socket.SHUT_WR)
        left = _MOST_DRAINED
        while left > 0 and (data := await loop.sock_recv(connection, _PIECE)):
            left -= len(data)
