"""Several calls in one task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from ullage.client.future import exception_of
from ullage.client.retry import Retries
from ullage.worker.function import call, failed
from ullage.worker.loop import Stopped
from ullage.worker.service import TaskFailed


class FailedCall(NamedTuple):
    """The exception of one call among the results of others: its pickle, and its text."""

    output: bytes | None
    message: str

    def exception(self) -> BaseException:
        """Return the exception; `TaskFailed` with its text if it cannot be pickled."""
        return exception_of(self.output, self.message) or TaskFailed(self.message)


class Chunk:
    """Calls a function once for each tuple of arguments, in a worker."""

    def __init__(self, function: Callable[..., Any], retries: Retries, *, keeps_failures: bool) -> None:
        self._function = function
        self._retries = retries
        self._keeps_failures = keeps_failures

    def __call__(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        """Return the results of the calls. The first failure fails all, unless failures are kept in their places."""
        if not self._retries.times and not self._keeps_failures:
            return [call(self._function, args, {}) for args in calls]
        return [self._patiently(args) for args in calls]

    def _patiently(self, args: tuple[Any, ...]) -> Any:
        made = 0
        while True:
            try:
                return call(self._function, args, {})
            except Stopped:  # this executor must end
                raise
            except BaseException as error:
                if self._retries.apply(made, error):
                    made += 1
                    continue
                if not self._keeps_failures:
                    raise
                failure = failed(error, skip=2)
                return FailedCall(failure.output, failure.message)


def cut(calls: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the calls in lists of `size`; the last one may be shorter."""
    remaining = iter(calls)
    while chunk := list(islice(remaining, size)):
        yield chunk


def flattened(chunks: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """Yield the results of chunks one by one; closing it closes `chunks`."""
    with closing(chunks):
        for results in chunks:
            yield from each_result(results)


def each_result(results: Any) -> Iterator[Any]:
    """Yield the results of a chunk, or the exception of the whole chunk in place of them."""
    if isinstance(results, BaseException):
        yield results
        return
    for result in results:
        yield result.exception() if isinstance(result, FailedCall) else result
