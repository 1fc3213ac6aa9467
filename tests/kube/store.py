"""What an API server keeps: every version of every object since it was last compacted, and who waits for more."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name


class Compacted(Exception):
    """That version is no longer kept."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object before and after one revision; None is no object. `reported` is what a watch delivers of it."""

    revision: int
    key: Key
    before: Item | None
    after: Item | None
    reported: Item


class Store:
    """One counter over all objects; items are never changed in place."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 1
        self._now: dict[Key, Item] = {}
        self._log: list[Change] = []
        self._news = asyncio.Condition()

    def get(self, key: Key) -> Item | None:
        return self._now.get(key)

    def put(self, key: Key, item: Item | None) -> Item:
        """Commit a new state, or with None the end of an object, whose last state then has the new version too."""
        before = self._now.get(key)
        self.revision += 1
        reported = before if item is None else item
        assert reported is not None
        reported = {**reported, "metadata": {**reported["metadata"], "resourceVersion": str(self.revision)}}
        if item is None:
            del self._now[key]
        else:
            self._now[key] = reported
        self._log.append(Change(self.revision, key, before, None if item is None else reported, reported))
        return reported

    async def announce(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def wait(self, beyond: int, at_most_s: float) -> bool:
        """Whether something happened after a revision, by then."""
        try:
            async with asyncio.timeout(at_most_s), self._news:
                await self._news.wait_for(lambda: self.revision > beyond)
        except TimeoutError:
            return False
        return True

    def at(self, revision: int) -> dict[Key, Item]:
        """All objects as they were."""
        if revision < self.compacted:
            raise Compacted
        past = dict(self._now)
        for change in reversed(self._log):
            if change.revision <= revision:
                break
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return past

    def since(self, revision: int) -> Iterator[Change]:
        if revision < self.compacted:
            raise Compacted
        return iter(self._log[bisect_right(self._log, revision, key=lambda change: change.revision) :])

    def compact(self) -> None:
        """Forget every version but the newest."""
        self._log.clear()
        self.compacted = self.revision
