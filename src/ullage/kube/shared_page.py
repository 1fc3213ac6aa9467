"""A page that is expensive to write: concurrent callers share one, and writing takes at most a tenth of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

CHEAP_S = 0.02
"""Seconds of writing up to which the page is not cached."""

REST = 9
"""After a longer write, the page is cached for this multiple of the time the write took."""


class SharedPage:
    """Calls `write` one at a time, and not again while the page is cached."""

    def __init__(self, write: Callable[[], Awaitable[bytes]], clock: Callable[[], float] = monotonic) -> None:
        self._write, self._clock = write, clock
        self._writing: asyncio.Task[bytes] | None = None
        self._page, self._stays_until = b"", float("-inf")

    async def get(self) -> bytes:
        if self._clock() < self._stays_until:
            return self._page
        if self._writing is None:
            self._writing = asyncio.create_task(self._renew())
        return await asyncio.shield(self._writing)

    async def _renew(self) -> bytes:
        began = self._clock()
        try:
            self._page = await self._write()
        finally:
            self._writing = None
        took = self._clock() - began
        if took > CHEAP_S:
            self._stays_until = self._clock() + REST * took
        return self._page
