"""Writing to the store without waiting for it, and acting once it is durable.

The writer of the store has its own thread. Callbacks run on the thread of the service, in the order of the writes. A
failed write is fatal: memory is ahead of the disk, so the process must restart from the last commit. A full disk is not
a failure: writes wait for room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ullage.model.error import UllageError, Unavailable
from ullage.service.store_port import Record, Store

Callback = Callable[[], None]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def in_one_write(
    use_case: Callable[Concatenate[Any, _Arguments], _Result],
) -> Callable[Concatenate[Any, _Arguments], _Result]:
    """Have a use case, a method of an object with a `_journal`, store all or nothing of what it changes."""

    @wraps(use_case)
    def stored(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with self._journal.together():
            return use_case(self, *args, **kwargs)

    return stored


class Journal:
    """Writes records, and calls back once they are durable."""

    def __init__(
        self,
        store: Store,
        wake: Callable[[Callback], object],
        on_failure: Callable[[BaseException], None],
        on_room: Callable[[], None],
        follow: Callable[[Sequence[Record]], list[Record]],
    ) -> None:
        """`wake` schedules a call on the thread of the service from any thread; `on_failure` ends the process.

        `on_room` is called when the disk is full, when it has room again, and when the store failed. `follow` returns
        the records that follow from others; they are stored in the same write.
        """
        self._store, self._wake, self._on_failure, self._on_room = store, wake, on_failure, on_room
        self._follow = follow
        self._done: deque[tuple[Future[None], Callback | None]] = deque()
        self._awake = False
        self._together: tuple[list[Record], list[Callback]] | None = None
        self.no_room: Unavailable | None = None
        """Why nothing is stored at present: the disk is full, and writes wait for room; or the store failed."""
        store.watch_room(self._note_room)

    def _note_room(self, error: Unavailable | None) -> None:
        """Report a full disk or a failure to the service, from the writer's thread."""

        def change() -> None:
            self.no_room = error
            self._on_room()

        self._wake(change)

    def write(self, *records: Record, then: Callback | None = None) -> None:
        """Store `records`, all or none, and call `then` once they are durable."""
        if self._together is not None:
            together, waiting = self._together
            together.extend((*records, *self._follow(records)))
            waiting.extend([] if then is None else [then])
            return
        self._store_all((*records, *self._follow(records)), then)

    def _store_all(self, records: Sequence[Record], then: Callback | None) -> None:
        future = self._store.write(*records)
        future.add_done_callback(lambda done: self._note(done, then))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Store all that is written inside in one write, all of it or nothing; inside another one as a part of it.

        What was written before a refusal (`UllageError`) is stored too: it is in memory.
        """
        if self._together is not None:
            yield
            return
        records: list[Record] = []
        waiting: list[Callback] = []
        self._together = records, waiting
        refusal: UllageError | None = None
        try:
            yield
        except UllageError as error:
            refusal = error
        finally:
            self._together = None

        def stored() -> None:
            for then in waiting:
                then()

        if records or waiting:
            self._store_all(records, stored)
        if refusal is not None:
            raise refusal

    def _note(self, future: Future[None], then: Callback | None) -> None:
        """Queue the callback of a write, from the writer's thread. One wake-up serves many."""
        self._done.append((future, then))
        if not self._awake:
            self._awake = True
            self._wake(self._call_back)

    def _call_back(self) -> None:
        self._awake = False
        while self._done:
            future, then = self._done.popleft()
            error = future.exception()
            if error is not None:
                if isinstance(error, Unavailable):
                    self.no_room = error
                    self._on_room()
                self._on_failure(error)
            elif then is not None:
                try:
                    then()
                except Exception as fault:  # noqa: BLE001 - memory may be half changed: end, and recover
                    self._on_failure(fault)
