"""The connections to a database: one writer, several readers.

With the write-ahead log of a file, readers see the last commit while a transaction is open. In memory there is one
connection, so a lock excludes readers from an open transaction.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine, event, select

from ullage.storage import tables
from ullage.storage.lock import OWNER_ONLY
from ullage.storage.statements import CACHED_STATEMENTS, driver_of
from ullage.storage.wal import file_sums, log_path, read_log
from ullage.storage.witness import LOG_PAGES, Testimony, Witness

_BUSY_TIMEOUT_S = 10.0
_SETTINGS = (
    # The witness syncs the log before a commit is acknowledged. SQLite syncs it before a checkpoint.
    "synchronous = NORMAL",
    "foreign_keys = ON",
    "cache_size = -32768",  # KiB
    f"wal_autocheckpoint = {LOG_PAGES}",
    "journal_size_limit = 67108864",  # bytes
)
_VERSION = "data_version"
_COUNT = f"UPDATE {tables.store.name} SET commits = ?"  # noqa: S608 - own name
_LOG = logging.getLogger(__name__)


class Database:
    """The connections to one database; `path` None keeps it in memory.

    `attest` makes a committed transaction durable. `sync_witness` follows before the log restarts.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.turn = Lock()
        """Held by the thread that writes, until its commit is attested."""
        self.commits = 0
        self._counted = False
        self._witness: Witness | None = None
        self._sum_file: BinaryIO | None = None
        self._writing: Connection | None = None
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
        """Open a transaction that is committed and made durable at the end, or rolled back on an exception."""
        with self.turn:
            with self.transaction() as connection:
                yield connection
            self.attest()
            self.sync_witness()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that is committed at the end or rolled back on an exception. `attest` makes it durable."""
        if self._witness is not None:
            self._witness.allocate()
        self._counted = False
        connection = self._connection()
        with self._gate, connection.begin():
            self._accept_foreign_commits(connection)
            yield connection
        self.commits += self._counted

    def _connection(self) -> Connection:
        """Return the writing connection. It stays open: a pool would apply a tenth of the time of a small commit."""
        if self._writing is None:
            self._writing = self._writer.connect()
        return self._writing

    def _accept_foreign_commits(self, connection: Connection) -> None:
        """Update the witness with commits of other programs since the last transaction. The open one blocks more."""
        if self._witness is None:
            return
        (version,) = driver_of(connection).execute("PRAGMA data_version").fetchone()
        if connection.info.get(_VERSION, version) != version and self._witness.renew(self._testimony(connection)):
            _LOG.warning("%s: another program wrote to it while it is in use; the changes are accepted", self.path)
        connection.info[_VERSION] = version

    def count(self, connection: Connection) -> None:
        """Store the number of the commit of an open transaction, which the next start checks."""
        driver_of(connection).execute(_COUNT, (self.commits + 1,)).close()
        self._counted = True

    def count_and_run(self, connection: Connection, statement: str) -> None:
        """Run all steps of a statement in a counted commit of its own, and end the open transaction.

        The driver runs only one step of a statement outside of a script, and it commits before a script.
        """
        number = _COUNT.replace("?", str(self.commits + 1))
        driver_of(connection).executescript(f"BEGIN IMMEDIATE; {number}; {statement}; COMMIT").close()
        self._counted = True

    def attest(self) -> None:
        """Make the last transaction durable, and write the sums of its pages."""
        if self._witness is not None:
            self._witness.attest(self.commits)

    @property
    def is_synced(self) -> bool:
        """Whether the records of `attest` are durable."""
        return self._witness is None or self._witness.is_synced

    def sync_witness(self) -> None:
        """Make the records of `attest` durable."""
        if self._witness is not None:
            self._witness.sync()

    def use_witness(self, testimony: Testimony) -> None:
        """Continue a witness that agrees with the unchanged file."""
        assert self.path is not None, "memory has no witness"
        self.commits = testimony.commits
        self._witness = Witness(self.path, testimony)

    def begin_witness(self) -> None:
        """Create a witness of the current file."""
        if self.path is None or self._witness is not None:
            return
        self._checkpoint("TRUNCATE")  # sums of a file are read faster than those of a log
        connection = self._connection()
        with connection.begin():
            self.commits = connection.execute(select(tables.store.c.commits)).scalar_one()
            self._witness = Witness(self.path, self._testimony(connection))

    def _testimony(self, connection: Connection) -> Testimony:
        """Return the sums of all pages that SQLite reads. The open transaction excludes other writers."""
        assert self.path is not None, "memory has no witness"
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        if self._sum_file is None:
            # It stays open: closing any descriptor of the file would drop the locks of SQLite on it.
            self._sum_file = self.path.open("rb")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        found = Testimony(size, file_sums(self._sum_file, size)[:pages], self.commits)
        for appended in read_log(log_path(self.path)).commits:
            found.apply(self.commits, appended)
        found.seen.clear()
        return found

    def shrink(self) -> None:
        """Checkpoint the log, which truncates free pages. While others read, a later checkpoint does that.

        Raises:
            sqlite3.Error: the file cannot be written.

        """
        self.sync_witness()
        if self.path is not None:
            self._checkpoint("PASSIVE")

    def _checkpoint(self, mode: str) -> None:
        driver_of(self._connection()).execute(f"PRAGMA wal_checkpoint({mode})").close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a view of the last commit, which does not change inside the block."""
        with self._gate, self._reader.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections. The last one checkpoints the log."""
        if self._witness is not None:
            self._witness.close()
        if self._writing is not None:
            self._writing.close()
        self._reader.dispose()
        self._writer.dispose()
        if self._sum_file is not None:
            self._sum_file.close()


def create_private(path: Path) -> None:
    """Create a missing file, readable by its owner only. The other files of SQLite get the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))


def _engine(database: str, pool: type[QueuePool | StaticPool], begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        # The listener below begins transactions, so the driver begins none (isolation_level None). One thread at a
        # time uses a connection, not always the one that created it.
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
    event.listen(engine, "begin", lambda connection: driver_of(connection).execute(begin).close())
    return engine


def _configure(connection: sqlite3.Connection, *, in_memory: bool) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if not pages:
        # It changes the layout of the file. In a file with pages it would commit without a record in the witness.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL").close()
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}").close()
    if in_memory:
        return
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("the file system does not support a write-ahead log; use a local disk")
