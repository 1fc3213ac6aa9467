"""The results of many futures, as an iterator."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from ullage.model.error import invalid

T = TypeVar("T")

Cancel = Callable[[list[Future[Any]]], object]
"""Cancels the remaining futures after a failure, a timeout, or the early end of a loop."""


class Deadline:
    """A time `seconds` from now; None is never.

    Raises:
        InvalidRequest: it is not a number.

    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not isinstance(seconds, int | float):
            raise invalid("timeout", seconds, "a number of seconds is needed, or None for no limit")
        self._ends = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Return the seconds until then, at least 0; None for never."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())


def in_order(futures: list[Future[T]], deadline: Deadline, cancel: Cancel) -> Iterator[T]:
    """Yield results in the order of `futures`, and remove each future to free its memory."""
    futures.reverse()
    try:
        while futures:
            yield _last_result(futures, deadline)
    finally:
        cancel(futures[::-1])


def _last_result(futures: list[Future[T]], deadline: Deadline) -> T:
    """Remove the last future and return its result. After an error the future remains."""
    future = futures.pop()
    try:
        return future.result(deadline.remaining())
    except BaseException:
        futures.append(future)
        raise


def as_they_end(futures: list[Future[T]], deadline: Deadline, cancel: Cancel) -> Iterator[T]:
    """Yield results in the order in which the futures end."""
    ended: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
    left = dict.fromkeys(futures)
    futures.clear()
    for future in left:
        future.add_done_callback(ended.put)
    try:
        while left:
            yield _next_result(ended, left, deadline)
    finally:
        cancel(list(left))


def _next_result(ended: queue.SimpleQueue[Future[T]], left: dict[Future[T], None], deadline: Deadline) -> T:
    """Return the result of the next future that ends, and remove that future."""
    try:
        future = ended.get(timeout=deadline.remaining())
    except queue.Empty:
        raise TimeoutError from None
    del left[future]
    return future.result()


def with_progress(results: Iterator[T], total: int) -> Iterator[T]:
    """Yield the same results, with a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and seldom needed
    from rich.progress import track  # noqa: PLC0415  # as above

    yield from track(results, "", total=total, console=Console(stderr=True))
