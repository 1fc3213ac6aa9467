"""One loop for all parts that act on the cluster: a queue of keys, and a function that reconciles one key.

It follows controller-runtime. Handlers of events add keys. The function reads the current state and acts on it, so it
does not matter how many events led to one call, or that a call is repeated.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from ullage.kube.client.lease import NotLeading
from ullage.model.error import UllageError

K = TypeVar("K", bound=Hashable)

OnError = Callable[[str, str, UllageError], None]
"""Called with an object that cannot be used or handled: its kind, its namespace and name, and the error."""

ALL = "all"
"""The only key of a controller that handles all objects together."""

FIRST_S, LONGEST_S = 1.0, 10.0
"""Seconds before a key that failed is tried again: they double with each further failure, up to the longest pause."""

_CLOSED_S = 0.2
"""Seconds between checks of a guard that does not let a due key through."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """How often in a row a key has failed, the last error, and when the key may be tried again."""

    times: int
    error: UllageError
    until: float


class Controller(Generic[K]):
    """Calls `reconcile` for each key that was added, never twice at once for the same key, until `run` is cancelled.

    `reconcile` returns the seconds after which it wants the key again; None if only an event matters. A key that is
    added several times before its turn is reconciled once; one that is added meanwhile is reconciled again. A key that
    fails is retried after a growing pause, which events do not shorten. Other keys go on. An error is reported when it
    first occurs, and again only if it changes. Errors that are no `UllageError` end `run`.
    """

    def __init__(
        self,
        kind: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        on_error: OnError = lambda _kind, _name, _error: None,
        guard: Callable[[], bool] = lambda: True,
        gap_s: float = 0.0,
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`guard` is asked before each key: while it returns False, keys wait. `kind` is that of reported errors.

        `at_once` keys are reconciled concurrently, each of these workers with a gap of `gap_s` seconds between two.
        """
        self._kind, self._reconcile, self._on_error, self._guard = kind, reconcile, on_error, guard
        self._gap_s, self._at_once, self._clock = gap_s, at_once, clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()
        self._busy: dict[K, float] = {}
        """The keys that are being reconciled, and when they are due again."""
        self._failed: dict[K, _Failure] = {}
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def error_of(self, key: K) -> UllageError | None:
        return self._failed[key].error if key in self._failed else None

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Reconcile a key after so many seconds, unless it is due earlier anyway."""
        self._put(key, self._clock() + after_s)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._at_once):
                workers.create_task(self._work())

    async def drain(self) -> None:
        """Reconcile each key of the queue once, due or not, as far as the guard allows: for tests."""
        for key in list(self._due):
            if key in self._due and self._guard():
                await self._handle(key)

    async def _work(self) -> None:
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                self._added.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                        await self._added.wait()
            elif not self._guard():
                await asyncio.sleep(_CLOSED_S)
            else:
                _, _, key = heappop(self._heap)
                await self._handle(key)
                await asyncio.sleep(self._gap_s)

    def _wait_s(self) -> float:
        """Return the seconds until the first key is due; infinite if there is none."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due:
                return due - self._clock()
            heappop(self._heap)
        return math.inf

    async def _handle(self, key: K) -> None:
        """Reconcile a key. If this is cancelled, the key is still in the queue."""
        del self._due[key]
        self._busy[key] = math.inf
        again_s: float | None = 0.0
        try:
            again_s = await self._reconcile(key)
            self._failed.pop(key, None)
        except NotLeading:
            again_s = _CLOSED_S
        except UllageError as error:
            again_s = self._fail(key, error)
        finally:
            due = self._busy.pop(key)
            if again_s is not None:
                due = min(due, self._clock() + again_s)
            if due < math.inf:
                self._put(key, due)

    def _put(self, key: K, due: float) -> None:
        if key in self._busy:
            self._busy[key] = min(self._busy[key], due)
            return
        if key in self._failed:
            due = max(due, self._failed[key].until)
        if due < self._due.get(key, math.inf):
            self._due[key] = due
            heappush(self._heap, (due, next(self._numbers), key))
            self._added.set()

    def _fail(self, key: K, error: UllageError) -> float:
        """Report an error if it is a new one. Return the seconds until the next attempt."""
        last = self._failed.get(key)
        times = 0 if last is None else last.times + 1
        pause_s = min(LONGEST_S, FIRST_S * 2.0 ** min(times, 10))
        self._failed[key] = _Failure(times, error, self._clock() + pause_s)
        if last is None or last.error.message != error.message:
            self._on_error(self._kind, str(key), error)
        return pause_s
