"""The futures of the tasks of one `map`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ullage.client.future import TaskFuture


class MapFutures:
    """Those that are submitted and that nobody has taken, and those that will be submitted."""

    def __init__(self, futures: Iterator[TaskFuture[Any]]) -> None:
        """`futures` submits a task when it is asked for the next future."""
        self._futures = futures
        self._submitted: deque[TaskFuture[Any]] = deque()
        self.total = 0

    def __iter__(self) -> Iterator[TaskFuture[Any]]:
        return iter(self._submitted)

    def __bool__(self) -> bool:
        return bool(self._submitted)

    def submit(self, count: int | None = 1) -> list[TaskFuture[Any]]:
        """Submit at most `count` further tasks, all if it is None, and return their futures."""
        before = len(self._submitted)
        self._submitted.extend(islice(self._futures, count))
        added = list(islice(self._submitted, before, None))
        self.total += len(added)
        return added

    def take(self) -> TaskFuture[Any]:
        """Remove the first future that is submitted, and return it."""
        return self._submitted.popleft()

    def put_back(self, future: TaskFuture[Any]) -> None:
        """Undo `take`."""
        self._submitted.appendleft(future)
