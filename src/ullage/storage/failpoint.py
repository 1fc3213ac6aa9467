"""Ending the process at a named step of a write, to show that a crash there loses nothing.

A point is `<what>:before` (memory has changed, nothing is on its way to the disk) or `<what>:stored`
(it is durable, nobody was told), with `:<n>` for the n-th time, as in `allocation.bound:stored:2`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future

from ullage.model.error import Unavailable, invalid
from ullage.model.event import Event
from ullage.model.task import TaskResult
from ullage.service.store_port import (
    DropAllocation,
    DropNomination,
    DropQuota,
    Page,
    PutAllocation,
    PutNomination,
    PutQuota,
    Record,
    Snapshot,
    Store,
    TaskView,
)

STEPS = ("before", "stored")
WHAT = (
    "allocation.assumed",
    "allocation.bound",
    "allocation.releasing",
    "allocation.dropped",
    "nomination.put",
    "nomination.dropped",
    "quota.put",
    "quota.dropped",
)
POINTS = tuple(f"{what}:{step}" for what in WHAT for step in STEPS)
"""All of them; each has a test that crashes there."""


class FailingStore:
    """A store that kills its process at one point."""

    def __init__(self, store: Store, point: str) -> None:
        what, step, count = (*point.split(":"), "1", "1")[:3]
        if f"{what}:{step}" not in POINTS or not count.isdecimal() or not int(count):
            raise invalid("ULLAGE_FAIL_AT", point, f"choose one of {', '.join(POINTS)}, with :2 for the second time")
        self._store = store
        self._what, self._step, self._left = what, step, int(count)

    def write(self, *records: Record) -> Future[None]:
        """Write, or die on the way."""
        meant = any(_name(record) == self._what for record in records)
        if meant:
            self._left -= 1
        if meant and not self._left and self._step == "before":
            _die()
        future = self._store.write(*records)
        if meant and not self._left:
            future.add_done_callback(lambda _done: _die())
        return future

    def load(self) -> Snapshot:
        """As the store."""
        return self._store.load()

    def results(self, session: str, page: Page) -> list[TaskResult]:
        """As the store."""
        return self._store.results(session, page)

    def tasks(self, session: str, page: Page) -> list[TaskView]:
        """As the store."""
        return self._store.tasks(session, page)

    def events(self, page: Page, session: str | None = None, *, evictions: bool = False) -> list[Event]:
        """As the store."""
        return self._store.events(page, session, evictions=evictions)

    def watch_room(self, notify: Callable[[Unavailable | None], None]) -> None:
        """As the store."""
        self._store.watch_room(notify)

    def close(self) -> None:
        """As the store."""
        self._store.close()


_NAMES: dict[type, str] = {
    DropAllocation: "allocation.dropped",
    PutNomination: "nomination.put",
    DropNomination: "nomination.dropped",
    PutQuota: "quota.put",
    DropQuota: "quota.dropped",
}


def _name(record: Record) -> str | None:
    if isinstance(record, PutAllocation):
        return f"allocation.{record.allocation.state.value}"
    return _NAMES.get(type(record))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
