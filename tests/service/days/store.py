"""Stores for days: one that keeps nothing, and one that answers when it has stored what it was given."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ullage.model.error import Unavailable
from ullage.model.event import Event
from ullage.model.task import TaskResult
from ullage.service.store_port import Page, Record, Snapshot, Store, TaskView


class Forgetful:
    """A store for a service that is never restarted."""

    def __init__(self) -> None:
        self._done: Future[None] = Future()
        self._done.set_result(None)

    def load(self) -> Snapshot:
        return Snapshot(1)

    def write(self, *_records: Record) -> Future[None]:
        return self._done

    def results(self, _session: str, _page: Page) -> list[TaskResult]:
        return []

    def tasks(self, _session: str, _page: Page) -> list[TaskView]:
        return []

    def events(self, _page: Page, _session: str | None = None) -> list[Event]:
        return []

    def eviction(self, _session: str) -> Event | None:
        return None

    def watch_room(self, _notify: Callable[[Unavailable | None], None]) -> None:
        """Nothing is kept, so there is always room."""

    def close(self) -> None:
        """Nothing is open."""


class Synchronous:
    """A store that has stored what it was given when it answers, so that a day is the same each time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, *records: Record) -> Future[None]:
        future = self._store.write(*records)
        future.exception()
        return future

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
