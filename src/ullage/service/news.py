"""Notification of waiting requests, such as long polls and live views, about changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


class News:
    """Topics that can be waited for: a session's id, the notices to deliver, or everything."""

    EVERYTHING, NOTICES = "*", "/notices"
    """Topics that are the id of no session."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def publish(self, topic: str) -> None:
        """Wake all who wait for `topic`, and all who wait for everything."""
        for name in (topic, self.EVERYTHING):
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Callable[[float | None], Awaitable[bool]]]:
        """Listen from now on. Yield a function that waits so many seconds, and returns whether there was news.

        With None it waits without an end.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(future)

        async def heard(timeout_s: float | None) -> bool:
            done, _ = await asyncio.wait([future], timeout=timeout_s)
            return bool(done)

        try:
            yield heard
        finally:
            for topic in topics:
                listeners = self._waiting.get(topic, set())
                listeners.discard(future)
                if not listeners:
                    self._waiting.pop(topic, None)
            future.cancel()

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Wait until `topic` has news. Return False after `timeout_s` seconds without any."""
        with self.listen(topic) as heard:
            return await heard(timeout_s)
