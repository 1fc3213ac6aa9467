"""Requests that wait until their changes are stored, and end early where nothing can be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UnstoredRequests:
    """Requests in progress. Each gives a function that ends it, unless its changes are stored or it is answered."""

    def __init__(self) -> None:
        self._ends: set[Callable[[], None]] = set()

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Register a request, which the block answers."""
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)

    def end_all(self) -> None:
        """End all: the disk is full, or the store failed."""
        for end in tuple(self._ends):
            end()
