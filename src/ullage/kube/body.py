"""Read HTTP request bodies up to a size limit."""

from __future__ import annotations

from starlette.requests import Request


async def read_body(request: Request, most: int) -> bytes:
    """Return the body. Stop reading once it exceeds `most` bytes; the result is then longer than `most`."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > most:
            break
    return bytes(found)
