"""Who waits for what to change: long polls and live views."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class News:
    """Topics that can be waited for: a session's id, or `everything`."""

    EVERYTHING = "*"

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def publish(self, topic: str) -> None:
        """Wake all who wait for `topic`, and all who wait for everything."""
        for name in (topic, self.EVERYTHING):
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)

    async def wait(self, topics: Iterable[str], timeout_s: float) -> bool:
        """Wait until one of `topics` has news; False after `timeout_s` seconds without."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        topics = tuple(topics)
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        else:
            return True
        finally:
            for topic in topics:
                self._waiting.get(topic, set()).discard(future)
