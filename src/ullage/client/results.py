"""The results of many futures, as an iterator."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from ullage.client.future import TaskFuture
from ullage.client.progress import shown_progress
from ullage.model.error import invalid

T = TypeVar("T")

Cancel = Callable[[list[Future[Any]]], object]
"""Cancels the remaining futures after a failure, a timeout, or the early end of a loop."""

Take = Callable[[TaskFuture[Any], float | None], Any]
"""Waits for a future, at most so many seconds, and returns what the iterator yields for it."""


def result_of(future: TaskFuture[T], timeout: float | None = None) -> T:
    """Return the result of a future.

    Raises:
        BaseException: that of the task.
        TimeoutError: the future did not end in time.

    """
    return future.result(timeout)


def outcome_of(future: TaskFuture[Any], timeout: float | None = None) -> Any:
    """Return the result of a future, or its exception; that of a whole chunk once for each of its calls.

    Raises:
        TimeoutError: the future did not end in time.

    """
    try:
        error = future.exception(timeout)
    except CancelledError as cancelled:
        error = cancelled
    if error is None:
        return future.result()
    return error if future.chunk is None else [error] * future.chunk


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


def in_order(futures: list[TaskFuture[Any]], deadline: Deadline, cancel: Cancel, take: Take) -> Iterator[Any]:
    """Yield results in the order of `futures`, and remove each future to free its memory."""
    futures.reverse()
    try:
        while futures:
            yield _last_result(futures, deadline, take)
    finally:
        cancel(list(reversed(futures)))


def _last_result(futures: list[TaskFuture[Any]], deadline: Deadline, take: Take) -> Any:
    """Remove the last future and return its result. After an error the future remains."""
    future = futures.pop()
    try:
        return take(future, deadline.remaining())
    except BaseException:
        futures.append(future)
        raise


def as_they_end(futures: list[TaskFuture[Any]], deadline: Deadline, cancel: Cancel, take: Take) -> Iterator[Any]:
    """Yield results in the order in which the futures end."""
    ended: queue.SimpleQueue[TaskFuture[Any]] = queue.SimpleQueue()
    left = dict.fromkeys(futures)
    futures.clear()
    for future in left:
        future.add_done_callback(ended.put)  # type: ignore[arg-type]  # it is called with the future itself
    try:
        while left:
            try:
                future = ended.get(timeout=deadline.remaining())
            except queue.Empty:
                raise TimeoutError from None
            del left[future]
            yield take(future, None)
    finally:
        cancel(list(left))


def with_progress(results: Iterator[T], total: int) -> Iterator[T]:
    """Yield the same results, and show how many there were of `total`."""
    with shown_progress(total) as advance:
        for result in results:
            yield result
            advance()
