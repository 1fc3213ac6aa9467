"""Bodies of requests, of which no more is read than is allowed."""

from __future__ import annotations

from starlette.requests import Request


async def read_body(request: Request, most: int) -> bytes:
    """The body; of one that is longer than `most` bytes no more than tells that it is."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > most:
            break
    return bytes(found)
