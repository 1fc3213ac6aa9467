"""Connections: one that writes, some that read.

A file is read beside the writer (write-ahead log: a reader sees the last commit). Memory has one
connection for all, so there a lock keeps readers out of an open transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine, event

from ullage.storage.lock import OWNER_ONLY
from ullage.storage.statements import CACHED_STATEMENTS

_BUSY_TIMEOUT_S = 10.0
_SETTINGS = (
    # Before the first page is written: it decides the layout of the file.
    "auto_vacuum = INCREMENTAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "cache_size = -32768",  # KiB
    "wal_autocheckpoint = 4096",  # pages
    "journal_size_limit = 67108864",  # bytes
)


class Database:
    """The connections to one database; `path` None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            self._gate: AbstractContextManager[object] = Lock()
            self._writer = self._reader = _engine(":memory:", StaticPool, "BEGIN IMMEDIATE")
        else:
            create_private(path)
            self._gate = nullcontext()
            self._writer = _engine(str(path), QueuePool, "BEGIN IMMEDIATE")
            self._reader = _engine(str(path), QueuePool, "BEGIN")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that commits at the end, or rolls back on an exception."""
        with self._gate, self._writer.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A view of the last commit; it does not change while it is held."""
        with self._gate, self._reader.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections; the last one brings the log into the file."""
        self._reader.dispose()
        self._writer.dispose()


def create_private(path: Path) -> None:
    """Make the file if it is missing, readable by its owner only; SQLite's side files get the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))


def _engine(database: str, pool: type[QueuePool | StaticPool], begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        # Transactions are begun below, so the driver begins none (isolation_level None). A connection
        # is used by one thread at a time, though not always by the one that made it.
        connection = sqlite3.connect(
            database,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            _configure(connection, in_memory=database == ":memory:")
        except BaseException:
            connection.close()
            raise
        return connection

    # Parameters are users' data: they stay out of error messages.
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=pool, hide_parameters=True)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _configure(connection: sqlite3.Connection, *, in_memory: bool) -> None:
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}").close()
    if in_memory:
        return
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("the file system does not support a write-ahead log; use a local disk")
