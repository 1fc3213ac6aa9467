"""The results of many futures, as an iterator."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """A time `seconds` from now; None is never."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds until then, at least 0; None for never."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())


def in_order(futures: list[Future[T]], deadline: Deadline) -> Iterator[T]:
    """Yield results in the order of `futures`, which is emptied, so that the memory of each can be freed."""
    futures.reverse()
    while futures:
        yield futures.pop().result(deadline.left())


def as_they_end(futures: list[Future[T]], deadline: Deadline) -> Iterator[T]:
    """Yield results in the order in which the futures end."""
    ended: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
    count = len(futures)
    for future in futures:
        future.add_done_callback(ended.put)
    futures.clear()
    for _ in range(count):
        try:
            future = ended.get(timeout=deadline.left())
        except queue.Empty:
            raise TimeoutError from None
        yield future.result()


def with_progress(results: Iterator[T], total: int) -> Iterator[T]:
    """Yield the same results, with a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and seldom needed
    from rich.progress import track  # noqa: PLC0415  # as above

    yield from track(results, "", total=total, console=Console(stderr=True))
