"""One unary gRPC call over a Unix socket.

This implements only the needed part of the protocol (gRPC over HTTP/2): no TLS, no compression, no streams. Trailers
are ignored: a complete message is the response, and a failed call has none.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from struct import Struct

import httpx2

from ullage.kube.client.errors import Unreachable

CONNECT_S = 2.0
ANSWER_S = 5.0
MOST_BYTES = 16 << 20
"""Maximum bytes of a response: the same as in the kubelet's own clients."""

_HEADERS = {"content-type": "application/grpc", "te": "trailers"}
_PREFIX = Struct(">BI")
"""The bytes before a message: a compression flag, and the length in four bytes."""


async def call(socket: Path, method: str, message: bytes = b"") -> bytes:
    """Return the response message of a method such as `/v1.Service/Method`.

    Raises:
        Unreachable: there is no valid response in time; the message says what went wrong.

    """
    try:
        async with asyncio.timeout(CONNECT_S + ANSWER_S):
            return await _ask(socket, method, message)
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise Unreachable(f"{socket}: {method}: {error or type(error).__name__}") from None


async def _ask(socket: Path, method: str, message: bytes) -> bytes:
    transport = httpx2.AsyncHTTPTransport(uds=str(socket), http1=False, http2=True)
    wait = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)
    body = _prefix_of(message) + message
    kept = bytearray()
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=wait) as client,
        client.stream("POST", method, content=body, headers=_HEADERS) as answer,
    ):
        async for piece in answer.aiter_raw():
            kept += piece
            if len(kept) > MOST_BYTES + _PREFIX.size:
                raise Unreachable(f"{socket}: {method}: the answer has more than {MOST_BYTES} bytes")
        status, reason = answer.headers.get("grpc-status", "0"), answer.headers.get("grpc-message", "")
    if not answer.is_success or status != "0":
        raise Unreachable(f"{socket}: {method}: refused with status {status} {reason}, HTTP {answer.status_code}")
    prefix, message = kept[: _PREFIX.size], bytes(kept[_PREFIX.size :])
    if prefix != _prefix_of(message):
        raise Unreachable(f"{socket}: {method}: there is no whole message in the answer")
    return message


def _prefix_of(message: bytes) -> bytes:
    uncompressed = 0
    return _PREFIX.pack(uncompressed, len(message))
