"""The results of many futures, as an iterator."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from ullage.client.deadline import Deadline
from ullage.client.future import TaskFuture
from ullage.client.map_futures import MapFutures
from ullage.client.progress import shown_progress

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


def in_order(futures: MapFutures, deadline: Deadline, cancel: Cancel, take: Take) -> Generator[Any, None, None]:
    """Yield results in the order of `futures`, and submit a further task for each."""
    try:
        while futures:
            yield _first_result(futures, deadline, take)
    finally:
        cancel(list(futures))


def _first_result(futures: MapFutures, deadline: Deadline, take: Take) -> Any:
    """Take the first future and return its result. After an error the future remains."""
    future = futures.take()
    try:
        result = take(future, deadline.remaining())
    except BaseException:
        futures.put_back(future)
        raise
    futures.submit()
    return result


def as_they_end(futures: MapFutures, deadline: Deadline, cancel: Cancel, take: Take) -> Generator[Any, None, None]:
    """Yield results in the order in which the futures end, and submit a further task for each."""
    ended: queue.SimpleQueue[TaskFuture[Any]] = queue.SimpleQueue()
    left: dict[TaskFuture[Any], None] = {}
    try:
        while futures or left:
            while futures:
                future = futures.take()
                left[future] = None
                future.add_done_callback(ended.put)  # type: ignore[arg-type]  # it is called with the future itself
            try:
                future = ended.get(timeout=deadline.remaining())
            except queue.Empty:
                raise TimeoutError from None
            del left[future]
            futures.submit()
            yield take(future, None)
    finally:
        cancel([*left, *futures])


def with_progress(results: Iterator[T], total: int | None) -> Generator[T, None, None]:
    """Yield the same results, and show how many there were of `total`; None is an unknown number."""
    with shown_progress(total) as advance:
        for result in results:
            yield result
            advance()
