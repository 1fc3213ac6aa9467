"""The writing thread: all queued writes become one transaction, then all their futures end.

A commit waits for the disk. Meanwhile writes are queued, and the next transaction has all of them. So the rate of
commits depends on the disk and not on the callers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import NamedTuple

from sqlalchemy import Connection

from ullage.model.error import Unavailable
from ullage.service.store_port import AddClaims, AddResults, AddTasks, Record
from ullage.storage.batch import Batch
from ullage.storage.database import Database
from ullage.storage.failure import disk_full, is_full, storage_closed, storage_failed
from ullage.storage.purge import STEP_ROWS, delete_rows

_RECLAIM_PAGES = 2048
"""Pages returned to the file system at a time, so that no write waits long."""


_QUIET_S = 0.05
"""Seconds without a write after which the records of the last commits are synced."""


_GROUP_ROWS = 32_768
"""Rows of a full group, so that a long queue does not become one long transaction."""


_ROOM_S = 0.5
"""Seconds between attempts on a full disk."""


class _Request(NamedTuple):
    records: tuple[Record, ...]
    future: Future[None]


class Writer:
    """Group commit. After the first failure every write ends with `Unavailable` (`storage-failed`).

    A full disk is no failure: SQLite rolls the group back, and it is written again until there is space. `notify_room`
    is called with the error at first, and with None when the group is written.

    Other failures are not retried: whether the failed transaction reached the disk is unknown until the database is
    opened again, and the memory of the service is ahead of it. The process must restart from the last commit.
    """

    def __init__(
        self, database: Database, notify_room: Callable[[Unavailable | None], None], *, left_rows: bool = False
    ) -> None:
        """`left_rows` says that an earlier process has left rows of dropped sessions."""
        self._database = database
        self._notify_room = notify_room
        self._closing = Event()
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._gate = Lock()  # no request may enter the queue behind the None that ends the thread
        self._closed = False
        self._failure: Exception | None = None
        self._deleting = left_rows
        self._reclaiming = True  # an earlier process may have left free pages
        self._shrunk = False
        self._numbers: dict[str, int] = {}
        self._thread = Thread(target=self._run, name="ullage-store", daemon=True)
        self._thread.start()

    def write(self, records: tuple[Record, ...]) -> Future[None]:
        """Queue `records` for one transaction. The future cannot be cancelled, and ends when they are durable."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._gate:
            if not self._closed:
                self._queue.put(_Request(records, future))
                return future
        future.set_exception(storage_closed())
        return future

    def close(self) -> None:
        """Write queued records and end the thread. A repeat does nothing."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            group: list[_Request] = []
            more = self._collect(group)
            with self._database.turn:
                if group:
                    self._write_group(group)
                else:
                    self._sync_witness()
                if more and self._failure is None:
                    self._tidy()

    def _collect(self, group: list[_Request]) -> bool:
        """Take queued writes; wait for the first one unless there is other work. Return False at the end."""
        block = not (self._deleting or self._reclaiming) or self._failure is not None
        wait_s = None if self._database.is_synced or self._failure is not None else _QUIET_S
        rows = 0
        while rows < _GROUP_ROWS:
            try:
                request = self._queue.get(block, wait_s)
            except Empty:
                return True
            if request is None:
                return False
            group.append(request)
            rows += sum(map(_rows, request.records))
            block = False
        return True

    def _write_group(self, group: list[_Request]) -> None:
        # An empty write only waits for earlier ones, which are durable by now.
        if self._failure is None and any(request.records for request in group):
            self._run_steps(lambda: self._commit(group), self._database.attest)
        for request in group:
            if self._failure is None:
                request.future.set_result(None)
            else:
                request.future.set_exception(storage_failed("write", self._failure))

    def _sync_witness(self) -> None:
        """Make the records of the last commits durable, which are acknowledged already."""
        if self._failure is None:
            self._run_steps(self._database.sync_witness)

    def _run_steps(self, *steps: Callable[[], None]) -> None:
        """Run steps until the first failure."""
        try:
            for step in steps:
                self._retry_on_full_disk(step)
        except Exception as error:  # noqa: BLE001 - reported to the callers, and to those of later writes
            self._failure = error

    def _retry_on_full_disk(self, step: Callable[[], None]) -> None:
        """Run a step that a full disk undoes, until it succeeds or the store is closed."""
        waited = False
        while True:
            try:
                step()
            except Exception as error:
                self._numbers.clear()  # they may be of sessions that the step had added
                path = self._database.path
                if path is None or not is_full(error, path) or self._closing.is_set():
                    raise
                if not waited:
                    self._notify_room(disk_full(path, error))
                waited = True
                self._closing.wait(_ROOM_S)
            else:
                if waited:
                    self._notify_room(None)
                return

    def _commit(self, group: list[_Request]) -> None:
        with self._database.transaction() as connection:
            batch = Batch(connection, self._numbers)
            for request in group:
                for record in request.records:
                    batch.add(record)
            batch.flush()
            self._database.count(connection)
        self._deleting = self._deleting or batch.left_rows
        self._reclaiming = self._reclaiming or batch.dropped_sessions

    def _tidy(self) -> None:
        """Do one step of what is left to do without a caller who waits for it."""
        if self._deleting:
            self._run_steps(self._delete_rows, self._database.attest)
        elif self._reclaiming:
            self._reclaim()

    def _delete_rows(self) -> None:
        """Delete some rows of dropped sessions."""
        with self._database.transaction() as connection:
            left = delete_rows(connection, STEP_ROWS)
            if left < STEP_ROWS:
                self._database.count(connection)
                self._reclaiming = True
            self._deleting = left <= 0

    def _reclaim(self) -> None:
        self._run_steps(self._vacuum, self._database.attest)
        if self._failure is None and self._shrunk and not self._reclaiming:
            self._run_steps(self._database.shrink)
            self._shrunk = False

    def _vacuum(self) -> None:
        with self._database.transaction() as connection:
            free = _free_pages(connection)
            if free:
                self._database.count_and_run(connection, f"PRAGMA incremental_vacuum({_RECLAIM_PAGES})")
                self._shrunk = True
            self._reclaiming = free > _RECLAIM_PAGES


def _rows(record: Record) -> int:
    match record:
        case AddTasks(inputs=rows) | AddResults(results=rows) | AddClaims(claims=rows):
            return len(rows)
        case _:
            return 1


def _free_pages(connection: Connection) -> int:
    free: int = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
    return free
