"""A cache of the objects of one kind: listed once, then updated by a watch. Handlers get each change once.

The result of a relist is compared with the cache, so handlers also get what was deleted while no watch was open. The
streams of two kinds are not ordered relative to each other: a pod may name a node that is not cached yet.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic

from ullage.kube.client.api import ALL, EventType, KubeApi, Selection, T, WatchEvent
from ullage.kube.client.errors import Throttled, Unreachable
from ullage.kube.client.kinds import Kind
from ullage.kube.recent import Recent
from ullage.model.error import UllageError

Key = tuple[str, str]
_REMEMBERED = 4096
"""Number of recent events kept to detect repetitions, and number of deletions that are remembered."""
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_LONGEST_WAIT_S = 120.0
"""Maximum wait in seconds for a server that asks to retry later, whatever it asks."""


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    """An object that was not cached. `created`: it is in the state in which it was created, as a watch reports it."""

    new: T
    created: bool = False


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """The same object (by uid) in another state."""

    old: T
    new: T


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    """A deleted object in its last known state. Another object of the same name may follow."""

    last: T


Delta = Added[T] | Changed[T] | Removed[T]
Handler = Callable[[Delta[T]], None]


class Informer(Generic[T]):
    """The cache. `run` updates it until it is cancelled.

    Handlers are called in order, in the event loop, right after the cache has changed. They must not raise: an error in
    one ends `run`. No change is lost or delivered twice, wherever `run` is interrupted.
    """

    def __init__(
        self,
        api: KubeApi,
        kind: Kind[T],
        select: Selection = ALL,
        *,
        resync_s: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """`resync_s`: the maximum age of a list. At the end of a watch, an older list is replaced."""
        self._api, self.kind, self._select = api, kind, select
        self._resync_s, self._clock, self._pause, self._chance = resync_s, clock, pause, chance
        self._objects: dict[Key, T] = {}
        self._handlers: list[Handler[T]] = []
        self._own_writes: dict[
            Key, tuple[str, str]
        ] = {}  # states of our own writes that the watch has not reported yet
        self._version: str | None = None
        self._listed_at = self._answered_at = -math.inf
        self._recent: Recent[tuple[str, ...], None] = Recent(_REMEMBERED)
        self._ended: Recent[str, None] = Recent(_REMEMBERED)  # uids
        self._received = self._begun = self._taken = 0  # lines of watches; numbers of the last lists begun and taken
        self._synced = asyncio.Event()
        self.objects: Mapping[Key, T] = MappingProxyType(self._objects)
        self.last_error: UllageError | None = None
        """The error of the last attempt; None while a watch is alive."""

    @property
    def synced(self) -> bool:
        """Whether the handlers have received a complete list."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def age_s(self) -> float:
        """Seconds since the server last answered: the maximum age of the cache. Infinite before the first list.

        A watch that the server accepts is an answer: it starts at the version that is known here.
        """
        return self._clock() - self._answered_at

    def subscribe(self, handler: Handler[T]) -> None:
        """Call a handler for all cached objects, and from now on for every change."""
        for item in list(self._objects.values()):
            handler(Added(item))
        self._handlers.append(handler)

    def has_ended(self, uid: str) -> bool:
        """Return whether the object is known to be deleted. Only the most recent deletions are remembered."""
        return uid in self._ended

    async def catch_up(self) -> None:
        """List the current state, however far behind the watch is.

        Events still pending in the watch are delivered all the same: a deleted object may reappear until its deletion
        follows.

        Raises:
            UllageError: the list failed; no handler was called.

        """
        await self._relist()

    def apply_write(self, before: T, after: T) -> None:
        """Apply our own write, which made `after` of `before`, to the cache at once: the watch may report it later.

        Until then the watch reports older states. If the cache has moved on meanwhile, nothing changes.
        """
        known = self._objects.get(before.key)
        moved = known is None or known.state != before.state or known.metadata.uid != after.metadata.uid
        if not moved and after.state != before.state:
            self._own_writes[after.key] = after.state
            self._put(after)

    async def run(self) -> None:
        """List, watch, and restart after every error. The pause grows while the server does not answer."""
        failures = 0
        while True:
            received, began, wait_s = self._received, self._clock(), 0.0
            try:
                if self._version is None or began >= self._listed_at + self._resync_s:
                    await self._relist()
                await self._follow()
            except Unreachable as error:
                self.last_error = error  # nothing was missed: the next watch resumes where this one ended
            except Throttled as error:
                self.last_error = (
                    error  # nothing was missed here either, and a busy server should not get a list request
                )
                wait_s = min(error.retry_after_s, _LONGEST_WAIT_S)
            except UllageError as error:
                self.last_error, self._version = error, None  # the version has expired or is uncertain
            well = self._received > received or self._clock() - began >= _LONGEST_PAUSE_S
            failures = 0 if well else failures + 1
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures, 10))
            await self._pause(max(wait_s, self._chance(pause_s / 2, pause_s)))

    async def _relist(self) -> None:
        """List the current state, and deliver all differences from the cache, or none.

        Of two concurrent lists the one that began first may be older. It is dropped if the other is already taken.
        """
        self._begun += 1
        number, version, before = self._begun, "", set(self._own_writes.items())
        known = {item.metadata.uid for item in self._objects.values()}
        found: dict[Key, T] = {}
        async with aclosing(self._api.pages(self.kind, self._select)) as pages:
            async for page in pages:
                version = page.version
                found |= {item.key: item for item in page.items}
        if number < self._taken:
            return
        self._taken = number
        self._own_writes = dict(self._own_writes.items() - before)  # the others are in this list
        for uid in known.difference(item.metadata.uid for item in found.values()):
            self._ended[uid] = None
        for key, last in list(self._objects.items()):
            if key not in found:
                self._remove(last)
        for item in found.values():
            if item.key not in self._own_writes:
                self._put(item)
        self._version = version
        self._recent.clear()
        self._listed_at = self._answered_at = self._clock()
        self._synced.set()

    async def _follow(self) -> None:
        """Take events until the stream ends, or a concurrent list is taken: then a new watch resumes from that list.

        Otherwise that list would undo an event that arrived while it was in flight, and the event would never come
        again.
        """
        assert self._version is not None
        taken = self._taken
        async with aclosing(self._api.watch(self.kind, self._version, self._select)) as events:
            async for event in events:
                if event.item is not None or event.version != self._version:
                    self._received += 1
                if self._taken != taken:
                    return
                self._answered_at, self.last_error = self._clock(), None
                self._take(event)

    def _take(self, event: WatchEvent[T]) -> None:
        item = event.item
        if item is not None:
            name = (event.type.value, *item.state)
            if name in self._recent:
                return
            self._recent[name] = None
            if event.type is EventType.DELETED:
                self._end(item)
            else:
                self._put_reported(item, created=event.type is EventType.ADDED)
        self._version = event.version

    def _end(self, last: T) -> None:
        self._ended[last.metadata.uid] = None
        known = self._objects.get(last.key)
        if known is not None and known.metadata.uid == last.metadata.uid:
            self._remove(last)

    def _put_reported(self, item: T, *, created: bool = False) -> None:
        if self._own_writes.get(item.key, item.state) == item.state:
            self._own_writes.pop(item.key, None)
            self._put(item, created=created)

    def _put(self, item: T, *, created: bool = False) -> None:
        old = self._objects.get(item.key)
        if old is not None and old.metadata.uid != item.metadata.uid:
            self._remove(old)
            old = None
        if old is not None and old.state == item.state:
            return
        self._objects[item.key] = item
        self._ended.pop(item.metadata.uid, None)
        self._notify(Added(item, created) if old is None else Changed(old, item))

    def _remove(self, last: T) -> None:
        del self._objects[last.key]
        self._own_writes.pop(last.key, None)
        self._notify(Removed(last))

    def _notify(self, delta: Delta[T]) -> None:
        for handler in self._handlers:
            handler(delta)
