"""The one thread that writes: everything queued becomes one transaction, then all its futures end.

A commit waits for the disk. While it does, writes queue up, and the next transaction carries them
all, so the number of commits follows the disk and not the callers.
"""

from __future__ import annotations

from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ullage.service.store_port import AddClaims, AddResults, AddTasks, Record
from ullage.storage.batch import Batch
from ullage.storage.database import Database
from ullage.storage.failure import storage_closed, storage_failed

_RECLAIM_PAGES = 2048
"""Pages given back to the file system at a time, so that no write waits long for it."""


_GROUP_ROWS = 32_768
"""Rows after which a group is full, so that a long queue does not become one long transaction."""


class _Request(NamedTuple):
    records: tuple[Record, ...]
    future: Future[None]


class Writer:
    """Group commit. After the first failure every write ends with `Unavailable` (`storage-failed`).

    It does not try again: whether the failed transaction reached the disk is unknown until the
    database is opened anew, and what the service holds in memory is ahead of it. The process must
    end and start again from the last commit.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._gate = Lock()  # no request may enter the queue behind the None that ends the thread
        self._closed = False
        self._failure: Exception | None = None
        self._reclaiming = True  # a former process may have left room unreclaimed
        self._numbers: dict[str, int] = {}
        self._thread = Thread(target=self._run, name="ullage-store", daemon=True)
        self._thread.start()

    def write(self, records: tuple[Record, ...]) -> Future[None]:
        """Queue `records` for one transaction; the future cannot be cancelled, and ends when they are durable."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._gate:
            if not self._closed:
                self._queue.put(_Request(records, future))
                return future
        future.set_exception(storage_closed())
        return future

    def close(self) -> None:
        """Write what is queued and end the thread; more than once does nothing."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        group: list[_Request] = []
        while self._collect(group):
            if group:
                self._write_group(group)
                group.clear()
            if self._reclaiming and self._failure is None:
                self._reclaim()

    def _collect(self, group: list[_Request]) -> bool:
        """Take what is queued, waiting for the first unless there is room to reclaim; False at the end."""
        block = not self._reclaiming or self._failure is not None
        rows = 0
        while rows < _GROUP_ROWS:
            try:
                request = self._queue.get(block=block)
            except Empty:
                return True
            if request is None:
                if group:
                    self._write_group(group)
                return False
            group.append(request)
            rows += sum(map(_rows, request.records))
            block = False
        return True

    def _write_group(self, group: list[_Request]) -> None:
        if self._failure is None:
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - whatever it is, the callers must hear of it
                self._failure = error
        for request in group:
            if self._failure is None:
                request.future.set_result(None)
            else:
                request.future.set_exception(storage_failed("write", self._failure))

    def _commit(self, group: list[_Request]) -> None:
        with self._database.writing() as connection:
            batch = Batch(connection, self._numbers)
            for request in group:
                for record in request.records:
                    batch.add(record)
            batch.flush()
        self._reclaiming = self._reclaiming or batch.dropped_sessions

    def _reclaim(self) -> None:
        try:
            with self._database.writing() as connection:
                self._reclaiming = _shrink(connection)
        except Exception as error:  # noqa: BLE001 - told to the next writer
            self._failure = error


def _rows(record: Record) -> int:
    match record:
        case AddTasks(inputs=rows) | AddResults(results=rows) | AddClaims(claims=rows):
            return len(rows)
        case _:
            return 1


def _shrink(connection: Connection) -> bool:
    """Give back some free pages; whether there are more."""
    if not connection.exec_driver_sql("PRAGMA freelist_count").scalar_one():
        return False
    # As a script, which the driver steps to its end: each step moves one page, and `execute` takes one step.
    driver: Any = connection.connection.driver_connection
    driver.executescript(f"PRAGMA incremental_vacuum({_RECLAIM_PAGES})").close()
    return bool(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
