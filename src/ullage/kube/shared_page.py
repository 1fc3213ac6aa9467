"""A page that is expensive to write: concurrent callers share one, and writing takes at most a tenth of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

_Page = TypeVar("_Page")

CHEAP_S = 0.02
"""Seconds of writing up to which the page is not cached."""

REST = 9
"""After a longer write, the page is cached for this multiple of the time the write took."""


class SharedPage(Generic[_Page]):
    """Calls `write` one at a time, and not again while the page is cached."""

    def __init__(self, write: Callable[[], Awaitable[_Page]], clock: Callable[[], float] = monotonic) -> None:
        self._write, self._clock = write, clock
        self._writing: asyncio.Task[_Page] | None = None
        self._page: _Page | None = None
        self._stays_until = float("-inf")

    async def get(self) -> _Page:
        if self._page is not None and self._clock() < self._stays_until:
            return self._page
        if self._writing is None:
            self._writing = asyncio.create_task(self._renew())
        return await asyncio.shield(self._writing)

    async def _renew(self) -> _Page:
        began = self._clock()
        try:
            page = self._page = await self._write()
        finally:
            self._writing = None
        took = self._clock() - began
        if took > CHEAP_S:
            self._stays_until = self._clock() + REST * took
        return page
