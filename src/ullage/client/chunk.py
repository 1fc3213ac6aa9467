"""Several calls in one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any


class Chunk:
    """Calls a function once for each tuple of arguments, in a worker."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        """Return the results of the calls. The first failure fails all."""
        function = self._function
        return [function(*args) for args in calls]


def cut(calls: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the calls in lists of `size`; the last one may be shorter."""
    remaining = iter(calls)
    while chunk := list(islice(remaining, size)):
        yield chunk
