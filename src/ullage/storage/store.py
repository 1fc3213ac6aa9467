"""The port `Store` on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, update
from sqlalchemy.exc import SQLAlchemyError

from ullage.model.error import UllageError, Unavailable
from ullage.model.event import Event
from ullage.model.history import Expiry, HistoryQuery, PastSession, Stay, UsageQuery, UsageReport
from ullage.model.name import check_name
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import EndedTask, Page, Record, Snapshot, TaskView
from ullage.storage import tables
from ullage.storage.check import check_file
from ullage.storage.database import Database
from ullage.storage.failure import describe, disk_full, is_full, storage_closed, storage_damaged, storage_unreadable
from ullage.storage.lock import FileLock
from ullage.storage.pages import (
    check_page,
    read_ended,
    read_events,
    read_evictions,
    read_results,
    read_shared,
    read_tasks,
)
from ullage.storage.past import has_expired, read_history, read_stays, read_usage
from ullage.storage.purge import last_dropped
from ullage.storage.schema import migrate
from ullage.storage.snapshot import read_snapshot
from ullage.storage.swap import finish_swap
from ullage.storage.writer import Writer

T = TypeVar("T")


class SqliteStore:
    """State in an SQLite file, or in memory with `path` None. Call `load` first.

    Writes are crash-only. A failed write (an I/O error, a record that contradicts stored ones) is rolled back. It and
    all later writes end with `Unavailable` (`storage-failed`): the process must restart from the last commit.
    Reads continue. On a full disk writes wait for free space (`watch_room`).

    One process at a time uses a file. Its files are readable by their owner only.

    Raises:
        Unavailable: `storage-in-use` if another store has the file open, `storage-failed` if the
            directory cannot be created or written.

    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = None if path is None else _lock(path)
        self._database: Database | None = None
        self._writer: Writer | None = None
        self._closed = False
        self._notify_room: Callable[[Unavailable | None], None] = lambda _error: None

    def load(self) -> Snapshot:
        """Check every page of the file, begin a new epoch, and return the stored state.

        Raises:
            Unavailable: `storage-damaged`, `storage-newer`, `disk-full` or `storage-failed`; the message names the
                file and a fix, and nothing was changed. `storage-closed` after `close`.

        """
        if self._closed:
            raise storage_closed()
        try:
            return self._load()
        except Unavailable:
            raise
        except (msgspec.MsgspecError, UllageError) as error:
            raise storage_damaged(self._path or "memory", str(error)) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            if self._path is not None and is_full(error, self._path):
                raise disk_full(self._path, error) from error
            raise _unopenable(self._path, error) from error

    def _load(self) -> Snapshot:
        """Load the state, and open the database if necessary. After an error it is closed for the next attempt."""
        database = self._database or self._open()
        try:
            self._begin_epoch(database)
            with database.reading() as connection:
                snapshot = read_snapshot(connection)
                left_rows = last_dropped(connection) > 0
        except BaseException:
            if self._writer is None:
                database.close()
            raise
        if self._writer is None:
            self._database, self._writer = database, Writer(database, self._room_changed, left_rows=left_rows)
        return snapshot

    def write(self, *records: Record) -> Future[None]:
        """Write all of `records` or none. The future ends in the writer's thread when they are durable."""
        if self._writer is None:
            future: Future[None] = Future()
            future.set_exception(storage_closed())
            return future
        return self._writer.write(records)

    def watch_room(self, notify: Callable[[Unavailable | None], None]) -> None:
        """Call `notify` from the writer's thread when the disk is full, and with None when it has free space again."""
        self._notify_room = notify

    def _room_changed(self, error: Unavailable | None) -> None:
        self._notify_room(error)

    def results(self, session: str, page: Page) -> list[TaskResult]:
        """Return results by sequence, as `Store.results`. An unknown session has none."""
        check_name("session", session)
        return self._read(page, lambda connection: read_results(connection, session, page))

    def tasks(self, session: str, page: Page) -> list[TaskView]:
        """Return tasks by id, as `Store.tasks`. An unknown session has none."""
        check_name("session", session)
        return self._read(page, lambda connection: read_tasks(connection, session, page))

    def ended(self, session: str, states: Collection[TaskState], page: Page) -> list[EndedTask]:
        """Return tasks that ended in these states by id, as `Store.ended`. An unknown session has none."""
        check_name("session", session)
        return self._read(page, lambda connection: read_ended(connection, session, states, page))

    def shared(self, session: str, submission: int) -> bytes | None:
        """Return the shared data of a submission, as `Store.shared`. An unknown one has none."""
        check_name("session", session)
        found = self._read(Page(), lambda connection: read_shared(connection, session, submission))
        return next(iter(found), None)

    def events(self, page: Page, session: str | None = None, *, evictions: bool = False) -> list[Event]:
        """Return events by number, as `Store.events`."""
        if session is not None:
            check_name("session", session)
        read = read_evictions if evictions else read_events
        return self._read(page, lambda connection: read(connection, page, session))

    def history(self, query: HistoryQuery, now: float) -> list[PastSession]:
        """Return sessions of the history, as `Store.history`."""
        return self._read(Page(query.after, query.limit), lambda connection: read_history(connection, query, now))

    def stays(self, query: HistoryQuery) -> list[Stay]:
        """Return stays, as `Store.stays`."""
        return self._read(Page(query.after, query.limit), lambda connection: read_stays(connection, query))

    def usage(self, query: UsageQuery, now: float) -> UsageReport:
        """Return the usage, as `Store.usage`."""
        return self._read(Page(), lambda connection: read_usage(connection, query, now))

    def has_expired(self, expiry: Expiry) -> bool:
        """Return whether rows of the history have expired, as `Store.has_expired`."""
        return self._read(Page(), lambda connection: has_expired(connection, expiry))

    def close(self) -> None:
        """Write queued records, close the file and release its lock. A repeat does nothing."""
        self._closed = True
        if self._writer is not None:
            self._writer.close()
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            self._lock.release()

    def _open(self) -> Database:
        if self._path is not None:
            finish_swap(self._path)
        testimony = None if self._path is None else check_file(self._path)
        database = Database(self._path)
        try:
            if testimony is not None:
                database.use_witness(testimony)
            with database.writing() as connection:
                migrate(connection)
            database.begin_witness()
        except BaseException:
            database.close()
            raise
        return database

    def _begin_epoch(self, database: Database) -> None:
        with database.writing() as connection:
            connection.execute(update(tables.store).values(epoch=tables.store.c.epoch + 1))
            database.count(connection)

    def _read(self, page: Page, read: Callable[[Connection], T]) -> T:
        check_page(page)
        if self._database is None:
            raise storage_closed()
        try:
            with self._database.reading() as connection:
                return read(connection)
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise storage_unreadable("page", error) from error


def _lock(path: Path) -> FileLock:
    try:
        _make_private_directory(path.parent)
    except OSError as error:
        raise _unopenable(path, error) from error
    return FileLock(path.with_name(path.name + ".lock"))


def _make_private_directory(directory: Path) -> None:
    if not directory.exists():
        _make_private_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def _unopenable(path: Path | None, cause: Exception) -> Unavailable:
    return Unavailable(
        f"{path or 'memory'} cannot be opened ({describe(cause)}); nothing was changed: "
        "the directory must be writable, on a local disk, and have free space",
        code="storage-failed",
    )
