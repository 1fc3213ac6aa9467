"""Recovery of the intact records of a damaged database.

The witness has the sum of each page. An intact copy of a page may be in the file, in any frame of the write-ahead log,
also after a damaged frame, or differ from a copy in one bit. Pages without an intact copy are lost. Each session is
recovered with all its rows or left out.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ullage.model.error import NotFound, Unavailable
from ullage.storage import tables
from ullage.storage.bit_flip import repair_bit_flip
from ullage.storage.check import bad_pages, check_file
from ullage.storage.database import Database, create_private
from ullage.storage.failure import disk_full, is_full, storage_damaged, storage_inaccessible
from ullage.storage.foreign_changes import counted_commits, integrity_error, is_sound, open_to_read
from ullage.storage.lock import FileLock
from ullage.storage.store import SqliteStore
from ullage.storage.swap import draft_path, exists, finish_swap, remove_files, swap
from ullage.storage.wal import FRAME_HEADER_BYTES, HEADER_BYTES, log_path, page_sum, read_log
from ullage.storage.witness import Testimony, read_witness, witness_path


@dataclass(slots=True)
class Recovery:
    """The result of a recovery.

    `pages` is None without a readable witness: then no page can be proven. `repaired` pages had an intact copy
    elsewhere or one flipped bit; `lost` pages have no intact copy. `left_out` names the records that are lost with
    them. `aside` is the new path of the damaged files after the swap. An `is_sound` database needs no recovery.
    `intact_at` is the last commit that SQLite reads, if a full check finds no error; `acknowledged` is the last
    acknowledged commit. `as_it_is` means that the content was accepted without the witness.
    """

    path: Path
    pages: int | None = None
    repaired: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    sessions: int = 0
    left_out: list[str] = field(default_factory=list)
    is_sound: bool = False
    intact_at: int | None = None
    acknowledged: int = 0
    as_it_is: bool = False
    aside: Path | None = None


def recover(path: Path, *, keep: bool, as_it_is: bool = False) -> Recovery:
    """Find the intact records; with `keep` replace the damaged database, whose files are moved aside.

    With `as_it_is` the witness is ignored: the content that SQLite reads is kept if a full check finds no error.

    Raises:
        Unavailable: `storage-in-use` while a server runs, `storage-damaged` if nothing can be read or the full check
            fails, `storage-newer`, `storage-failed` if the files cannot be read or written, `disk-full`.
        NotFound: the database does not exist.

    """
    if not exists(path):
        raise NotFound(f"{path} does not exist", field="file")
    lock = FileLock(path.with_name(path.name + ".lock"))
    draft, found = draft_path(path), Recovery(path, as_it_is=as_it_is)
    try:
        finish_swap(path)
        remove_files(draft)
        found.is_sound = _passes(path)
        if found.is_sound:
            found.sessions = _sessions_of(path)
            return found
        _make(path, draft, found)
        if keep:
            found.aside = _put_in_place(path, draft)
    except (OSError, sqlite3.Error) as error:
        raise _unrecoverable(found, draft, error) from error
    finally:
        if draft.exists() or not witness_path(draft).exists():  # else a swap has to be finished
            remove_files(draft)
        lock.release()
    return found


def _passes(path: Path) -> bool:
    """Return whether a start accepts the file."""
    try:
        check_file(path)
    except Unavailable as refusal:
        if refusal.code != "storage-damaged":
            raise
        return False
    return True


def _sessions_of(path: Path) -> int:
    if not path.exists() or not path.stat().st_size:
        return 0
    with closing(open_to_read(path)) as connection:
        return _count(connection, "sessions", _NOT_DROPPED)


def _unrecoverable(found: Recovery, draft: Path, error: OSError | sqlite3.Error) -> Unavailable:
    if is_full(error, found.path):
        return disk_full(draft, error)
    if isinstance(error, OSError):
        return storage_inaccessible(found.path, error)
    fix = "restore a backup of it and of its witness"
    if found.intact_at is not None:
        fix = (
            f"the file is intact at commit {found.intact_at} of {found.acknowledged} acknowledged ones: "
            "--keep --as-it-is keeps it"
        )
    return Unavailable(
        f"no row of {found.path} can be reached through intact pages ({error}); nothing was changed: {fix}",
        code="storage-damaged",
    )


def _make(path: Path, draft: Path, found: Recovery) -> None:
    image = draft.with_name(draft.name + ".pages")
    remove_files(image)
    try:
        testimony = None if found.as_it_is else _usable_witness(path, found)
        if testimony is None:
            _copy_with_log(path, image)
        else:
            found.pages = len(testimony.sums)
            _assemble(path, testimony, image, found)
        if found.as_it_is:
            _refuse_faults(path, image)
        _salvage(image, draft, found)
    finally:
        remove_files(image)


def _usable_witness(path: Path, found: Recovery) -> Testimony | None:
    """Return the witness with the commits that follow in the log; None if it is missing or unusable."""
    try:
        testimony = read_witness(path)
    except ValueError:
        return None
    if testimony is None or not path.exists() or not path.stat().st_size:  # SQLite removes the log of an empty file
        return testimony
    log = read_log(log_path(path), testimony.position)
    with closing(open_to_read(path)) as connection:
        if not integrity_error(connection):
            found.intact_at, found.acknowledged = counted_commits(connection), testimony.commits
    if testimony.bad_at is not None and is_sound(path, testimony, log, bad_pages(path, testimony, log)):
        return None
    for appended in log.commits if log.follows(testimony.position) else ():
        testimony.apply(testimony.commits, appended)
    return testimony


def _refuse_faults(path: Path, image: Path) -> None:
    with closing(sqlite3.connect(image)) as connection:
        finding = integrity_error(connection)
    if finding:
        raise storage_damaged(path, f"a full check fails: {finding}")


# --- pages ---


def _assemble(path: Path, testimony: Testimony, image: Path, found: Recovery) -> None:
    """Write the intact pages into `image`, and zeros for the others."""
    size = testimony.page_bytes
    create_private(image)
    copies = _Copies(path, size)
    with image.open("wb") as file, closing(copies):
        for number, total in enumerate(testimony.sums, 1):
            candidates = list(copies.of(number))
            page = next((each for each in candidates if not total or page_sum(each) == total), None)
            if candidates and (page is None or page is not candidates[0]):
                page = page or next(filter(None, (repair_bit_flip(each, total) for each in candidates)), None)
                found.repaired += [number] if page else []
            if page is None and total:
                found.lost.append(number)
            file.write(page or bytes(size))


class _Copies:
    """The copies of pages, first those that SQLite would read."""

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._file = path.open("rb") if path.exists() else None
        log = log_path(path)
        self._log = log.open("rb") if log.exists() else None
        self._frames: dict[int, list[int]] = defaultdict(list)
        if self._log is not None:
            frame = FRAME_HEADER_BYTES + size
            for at in range(HEADER_BYTES, os.fstat(self._log.fileno()).st_size - frame + 1, frame):
                self._frames[int.from_bytes(os.pread(self._log.fileno(), 4, at))].append(at)

    def of(self, number: int) -> Iterator[bytes]:
        if self._log is not None:
            for at in reversed(self._frames[number]):
                yield os.pread(self._log.fileno(), self._size, at + FRAME_HEADER_BYTES)
        if self._file is not None:
            page = os.pread(self._file.fileno(), self._size, (number - 1) * self._size)
            if len(page) == self._size:
                yield page

    def close(self) -> None:
        for file in (self._file, self._log):
            if file is not None:
                file.close()


def _copy_with_log(path: Path, image: Path) -> None:
    create_private(image)
    image.write_bytes(path.read_bytes())
    if log_path(path).exists():
        log_path(image).write_bytes(log_path(path).read_bytes())


# --- rows ---


def _salvage(image: Path, draft: Path, found: Recovery) -> None:
    """Copy every row that can be read, session by session, into a new database."""
    with closing(sqlite3.connect(image)) as old:
        if old.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
            found.sessions = _count(old, "sessions", _NOT_DROPPED)
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            old.close()
            image.replace(draft)
            return
        store = SqliteStore(draft)
        store.load()
        store.close()
        with closing(sqlite3.connect(draft)) as new:
            _Salvage(old, new, found).copy()
            new.commit()
            if new.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise sqlite3.DatabaseError("the recovered records contradict each other")
    remove_files(witness_path(draft))


_NOT_DROPPED = "WHERE id NOT LIKE '/%'"
"""Leaves out sessions whose rows are being deleted (see `purge`)."""


def _count(connection: sqlite3.Connection, table: str, where: str = "") -> int:
    """Return the number of rows of a table; 0 if it does not exist."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if table not in names:
        return 0
    counted: int = connection.execute(f"SELECT count(*) FROM {table} {where}").fetchone()[0]  # noqa: S608 - a constant
    return counted


class _Salvage:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, found: Recovery) -> None:
        self._old, self._new, self._found = old, new, found

    def copy(self) -> None:
        self._new.execute("DELETE FROM store")
        for table in (tables.store, *tables.NAMED):
            self._copy_rows(table.name)
        if not _count(self._new, "store"):
            raise sqlite3.DatabaseError("the row with the epoch is lost, which late results are compared with")
        self._copy_rows("sessions", self._copy_session)
        for name in ("events", *(table.name for table in tables.ACCOUNTS)):
            self._copy_rows(name)

    def _copy_rows(self, table: str, copy: Callable[[str, tuple[object, ...]], None] | None = None) -> None:
        """Copy a table up to the first row that cannot be read, each row by `copy`, or as it is."""
        copy = copy or self._insert
        try:
            for row in self._rows(table, ""):
                copy(table, row)
        except sqlite3.DatabaseError:
            self._found.left_out.append(f"some {table}")

    def _copy_session(self, table: str, row: tuple[object, ...]) -> None:
        name, number = row[:2]
        if str(name).startswith("/"):  # dropped
            return
        order = ("submissions", "tasks", "claims", "attempts", "results", "payloads")
        try:
            rows = {part: list(self._rows(part, f"WHERE session = {number}")) for part in order}
        except sqlite3.DatabaseError:
            self._found.left_out.append(f"session {name}")
            return
        self._found.sessions += 1
        self._insert(table, row)
        for part in order:
            for each in rows[part]:
                self._insert(part, each)

    def _rows(self, table: str, where: str) -> Iterator[tuple[object, ...]]:
        names = ", ".join(f'"{column.name}"' for column in tables.METADATA.tables[table].columns)
        # In the order of the table itself: an index may be damaged.
        yield from self._old.execute(f"SELECT {names} FROM {table} NOT INDEXED {where}")  # noqa: S608 - own names

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        names = ", ".join(f'"{column.name}"' for column in tables.METADATA.tables[table].columns)
        self._new.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - own names


# --- files ---


def _put_in_place(path: Path, draft: Path) -> Path:
    """Create a witness of the recovered database, and swap it in."""
    database = Database(draft)
    try:
        with database.transaction() as connection:
            counts = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(store)")}
        if "commits" in counts:
            database.begin_witness()
    finally:
        database.close()
    return swap(path)
