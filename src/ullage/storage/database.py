"""Connections: one that writes, some that read.

A file is read beside the writer (write-ahead log: a reader sees the last commit). Memory has one
connection for all, so there a lock keeps readers out of an open transaction.
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
    # The witness brings the log to the disk before the commit is acknowledged. SQLite does so before a checkpoint.
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

    A transaction is committed, then attested, which makes it durable, and settled before the log is begun again.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.turn = Lock()
        """Held by the thread that writes, until its commit is attested."""
        self.commits = 0
        self._counted = False
        self._witness: Witness | None = None
        self._kept: BinaryIO | None = None
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
        """A transaction that commits and is attested at the end, or rolls back on an exception."""
        with self.turn:
            with self.transaction() as connection:
                yield connection
            self.attest()
            self.settle()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that commits at the end, or rolls back on an exception; `attest` makes it durable."""
        if self._witness is not None:
            self._witness.make_room()
        self._counted = False
        connection = self._connection()
        with self._gate, connection.begin():
            self._follow_others(connection)
            yield connection
        self.commits += self._counted

    def _connection(self) -> Connection:
        """Return the connection that writes. It stays open: a pool takes a tenth of the time of a small commit."""
        if self._writing is None:
            self._writing = self._writer.connect()
        return self._writing

    def _follow_others(self, connection: Connection) -> None:
        """Take what other programs have committed since the last transaction; this one keeps them from more."""
        if self._witness is None:
            return
        (version,) = driver_of(connection).execute("PRAGMA data_version").fetchone()
        if connection.info.get(_VERSION, version) != version and self._witness.renew(self._testimony(connection)):
            _LOG.warning("%s: another program wrote to it while it is in use; what it wrote is taken", self.path)
        connection.info[_VERSION] = version

    def count(self, connection: Connection) -> None:
        """Number the commit of an open transaction: a start then knows how many commits a database has."""
        driver_of(connection).execute(_COUNT, (self.commits + 1,)).close()
        self._counted = True

    def count_and_run(self, connection: Connection, statement: str) -> None:
        """Take all steps of a statement in a commit of its own, which is counted; the open transaction ends.

        The driver takes one step of a statement where the statement is not part of a script, and it commits before a
        script.
        """
        number = _COUNT.replace("?", str(self.commits + 1))
        driver_of(connection).executescript(f"BEGIN IMMEDIATE; {number}; {statement}; COMMIT").close()
        self._counted = True

    def attest(self) -> None:
        """Make the last transaction durable, and write the sums of its pages."""
        if self._witness is not None:
            self._witness.attest(self.commits)

    @property
    def is_settled(self) -> bool:
        """Whether all that `attest` wrote is durable."""
        return self._witness is None or self._witness.is_settled

    def settle(self) -> None:
        """Make what `attest` wrote durable."""
        if self._witness is not None:
            self._witness.settle()

    def trust(self, testimony: Testimony) -> None:
        """Go on with a witness that agrees with the file; nothing was written since."""
        assert self.path is not None, "memory has no witness"
        self.commits = testimony.commits
        self._witness = Witness(self.path, testimony)

    def begin_witness(self) -> None:
        """Make a witness of the file as it is now."""
        if self.path is None or self._witness is not None:
            return
        self._checkpoint("TRUNCATE")  # the sums of a file are read faster than those of a log
        connection = self._connection()
        with connection.begin():
            self.commits = connection.execute(select(tables.store.c.commits)).scalar_one()
            self._witness = Witness(self.path, self._testimony(connection))

    def _testimony(self, connection: Connection) -> Testimony:
        """Return the sums of all pages as SQLite reads them; the open transaction keeps others from writing."""
        assert self.path is not None, "memory has no witness"
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        if self._kept is None:
            # Closing any descriptor of the file would drop the locks of SQLite on it: it stays open.
            self._kept = self.path.open("rb")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        found = Testimony(size, file_sums(self._kept, size)[:pages], self.commits)
        for appended in read_log(log_path(self.path)).commits:
            found.take(self.commits, appended)
        found.seen.clear()
        return found

    def give_back_room(self) -> None:
        """Bring the log into the file, which cuts off the pages that are gone; a later commit does where others read.

        Raises:
            sqlite3.Error: the file cannot be written.

        """
        self.settle()
        if self.path is not None:
            self._checkpoint("PASSIVE")

    def _checkpoint(self, mode: str) -> None:
        driver_of(self._connection()).execute(f"PRAGMA wal_checkpoint({mode})").close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A view of the last commit; it does not change while it is held."""
        with self._gate, self._reader.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections; the last one brings the log into the file."""
        if self._witness is not None:
            self._witness.close()
        if self._writing is not None:
            self._writing.close()
        self._reader.dispose()
        self._writer.dispose()
        if self._kept is not None:
            self._kept.close()


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
    event.listen(engine, "begin", lambda connection: driver_of(connection).execute(begin).close())
    return engine


def _configure(connection: sqlite3.Connection, *, in_memory: bool) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if not pages:
        # It decides the layout of the file. In a file that has pages it would commit, and no witness would know.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL").close()
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}").close()
    if in_memory:
        return
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("the file system does not support a write-ahead log; use a local disk")
