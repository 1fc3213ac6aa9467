"""A store that kills its process at a step of a write, for tests of crashes.

A point is `<record>:before` (memory has changed, the write has not begun) or `<record>:stored` (it is durable but not
acknowledged), with `:<n>` for the n-th time, as in `allocation.bound:stored:2`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from concurrent.futures import Future

from ullage.model.error import Unavailable, invalid
from ullage.model.event import Event
from ullage.model.history import Expiry, HistoryQuery, PastSession, Stay, UsageQuery, UsageReport
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import (
    Drop,
    EndedTask,
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
RECORDS = (
    "allocation.assumed",
    "allocation.bound",
    "allocation.releasing",
    "allocation.dropped",
    "nomination.put",
    "nomination.dropped",
    "quota.put",
    "quota.dropped",
)
POINTS = tuple(f"{record}:{step}" for record in RECORDS for step in STEPS)
"""All points; each has a test that crashes there."""


class FailingStore:
    """A store that kills its process at one point."""

    def __init__(self, store: Store, point: str) -> None:
        what, step, count = (*point.split(":"), "1", "1")[:3]
        if f"{what}:{step}" not in POINTS or not count.isdecimal() or not int(count):
            raise invalid("ULLAGE_FAIL_AT", point, f"choose one of {', '.join(POINTS)}, with :2 for the second time")
        self._store = store
        self._what, self._step, self._left = what, step, int(count)

    def write(self, *records: Record) -> Future[None]:
        """Write the records; kill the process at the point."""
        matches = any(_name(record) == self._what for record in records)
        if matches:
            self._left -= 1
        if matches and not self._left and self._step == "before":
            _die()
        future = self._store.write(*records)
        if matches and not self._left:
            future.add_done_callback(lambda _done: _die())
        return future

    def load(self) -> Snapshot:
        return self._store.load()

    def results(self, session: str, page: Page) -> list[TaskResult]:
        return self._store.results(session, page)

    def tasks(self, session: str, page: Page) -> list[TaskView]:
        return self._store.tasks(session, page)

    def ended(self, session: str, states: Collection[TaskState], page: Page) -> list[EndedTask]:
        return self._store.ended(session, states, page)

    def shared(self, session: str, submission: int) -> bytes | None:
        return self._store.shared(session, submission)

    def events(self, page: Page, session: str | None = None, *, evictions: bool = False) -> list[Event]:
        return self._store.events(page, session, evictions=evictions)

    def history(self, query: HistoryQuery, now: float) -> list[PastSession]:
        return self._store.history(query, now)

    def stays(self, query: HistoryQuery) -> list[Stay]:
        return self._store.stays(query)

    def usage(self, query: UsageQuery, now: float) -> UsageReport:
        return self._store.usage(query, now)

    def has_expired(self, expiry: Expiry) -> bool:
        return self._store.has_expired(expiry)

    def watch_room(self, notify: Callable[[Unavailable | None], None]) -> None:
        self._store.watch_room(notify)

    def close(self) -> None:
        self._store.close()


_NAMES = {PutAllocation: "allocation", PutNomination: "nomination", PutQuota: "quota"}


def _name(record: Record) -> str:
    if isinstance(record, Drop):
        return f"{_NAMES.get(record.kind, 'other')}.dropped"
    if isinstance(record, PutAllocation):
        return f"allocation.{record.allocation.state.value}"
    return f"{_NAMES.get(type(record), 'other')}.put"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
