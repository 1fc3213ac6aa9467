"""Calls that a later client finds again by their place in a map with a key.

The key of a submission is made of the key of the map and the place of its first call. The server answers a repeated
key with the ids of the tasks that it accepted before, however many they were; so the cuts between submissions may
differ from client to client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ullage.model.error import InvalidRequest
from ullage.model.name import check_name
from ullage.wire.session import Result


class KnownTask(NamedTuple):
    """The task of a call that an earlier client has sent, with its result once that came."""

    task: int
    result: Result | None


class KeyedMap:
    """One map with a key, for one function and size of chunks: those are part of the key."""

    def __init__(self, key: str, function: Callable[..., Any], chunksize: int) -> None:
        """Check the key.

        Raises:
            InvalidRequest: the key is no name.

        """
        named = "\n".join((check_name("key", key), _name_of(function), str(chunksize)))
        self.key = key
        self.id = hashlib.sha256(named.encode()).hexdigest()[:32]
        self._tasks: dict[int, int] = {}
        self._results: dict[int, Result | None] = {}

    def record(self, place: int, first: int, count: int) -> None:
        """Record the tasks of an earlier submission that go beyond the calls that were sent now."""
        tasks = range(first, first + count)
        self._tasks.update(zip(range(place, place + count), tasks, strict=True))
        for task in tasks:
            self._results.setdefault(task)

    def keep(self, result: Result) -> None:
        """Keep the result of a recorded task until its call is made. Other results are ignored."""
        if result.task in self._results:
            self._results[result.task] = result

    def take(self, place: int) -> KnownTask | None:
        """Return the task of a call that an earlier submission contained, once."""
        task = self._tasks.pop(place, None)
        return None if task is None else KnownTask(task, self._results.pop(task))


class MapPlace(NamedTuple):
    """The place of a call in its map; `attempt` counts the times that it was tried before."""

    map: KeyedMap
    number: int
    attempt: int = 0

    @property
    def key(self) -> str:
        """Return the key of a submission that begins with this call."""
        return f"map.{self.map.id}.{self.number}.{self.attempt}"

    def is_followed_by(self, other: MapPlace) -> bool:
        """Return whether `other` may be in the same submission, directly after this call."""
        return self.map is other.map and not self.attempt and not other.attempt and other.number == self.number + 1


def require_open_session(key: str, *, stays_open: bool) -> None:
    """Refuse a key in a session that ends with its client.

    Raises:
        InvalidRequest: no later client could find the calls.

    """
    if not stays_open:
        text = f"key: {key!r} is not valid: the session ends with its `with` block, so that nothing can be resumed"
        raise InvalidRequest(f"{text}; use client.open_session(NAME, ...)", field="key")


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))
