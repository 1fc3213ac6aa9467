"""One who listens to an informer, and finds every word of it possible."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ullage.kube.client.informer import Added, Changed, Delta, Informer, Key, Removed


class Audience:
    """Rebuilds the cache from delivered events alone."""

    def __init__(self, informer: Informer[Any]) -> None:
        self.there: dict[Key, Any] = {}
        self.reported: list[tuple[str, str]] = []  # events and their objects
        self._informer = informer
        self._live = False  # existing objects are delivered one by one
        informer.subscribe(self.hear)
        self._live = True
        assert self.there == informer.objects

    def hear(self, delta: Delta[Any]) -> None:
        match delta:
            case Added(new):
                assert new.key not in self.there
                self.there[new.key] = new
            case Changed(old, new):
                assert self.there[old.key] is old
                assert old.metadata.uid == new.metadata.uid
                assert old.state != new.state
                self.there[new.key] = new
            case Removed(last):
                assert self.there.pop(last.key).metadata.uid == last.metadata.uid
        self.reported.append(
            (type(delta).__name__, (delta.last if isinstance(delta, Removed) else delta.new).metadata.name)
        )
        assert not self._live or self.there == self._informer.objects

    def states(self) -> dict[str, tuple[str, str]]:
        return {item.metadata.name: item.state for item in self.there.values()}


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[asyncio.Task[None]]:
    """The informer at work; an error of its own, as of one who listens, is raised at the end."""
    task = asyncio.create_task(informer.run())
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()
