"""Those who wait for a change: long polls and live views."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


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

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Listen from here on; the value given, awaited with a number of seconds, says whether there was news."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(future)

        async def heard(timeout_s: float) -> bool:
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
        """Wait until `topic` has news; False after `timeout_s` seconds without."""
        with self.listen(topic) as heard:
            return await heard(timeout_s)
