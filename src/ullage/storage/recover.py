"""What is whole of a damaged database, and a sound database made of it.

The witness says what each page must be. A page is taken from wherever it is whole: the file, any frame of the
write-ahead log, also after a damaged one, or a copy in which one bit turned. Only what was on pages that are nowhere
whole is lost. Then each session is kept with all its rows, or left out with all of them.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ullage.model.error import NotFound, Unavailable
from ullage.storage import tables
from ullage.storage.check import bad_pages, check_file
from ullage.storage.database import Database, create_private
from ullage.storage.failure import disk_full, is_full, storage_damaged, storage_inaccessible
from ullage.storage.lock import FileLock
from ullage.storage.others import counted_commits, fault, is_sound, open_to_read
from ullage.storage.store import SqliteStore
from ullage.storage.swap import draft_path, finish_swap, is_there, remove_files, swap
from ullage.storage.turned import turn_back
from ullage.storage.wal import FRAME_HEADER_BYTES, HEADER_BYTES, log_path, page_sum, read_log
from ullage.storage.witness import Testimony, read_witness, witness_path

_OWN_ROWS = ("applications", "queues", "nodes", "executors", "allocations", "nominations", "gangs", "waits", "quotas")


@dataclass(slots=True)
class Recovery:
    """What is whole of a database.

    `pages` is None without a readable witness: then nothing proves what is whole. `mended` pages were found elsewhere
    or had one wrong bit, `lost` ones are nowhere whole. `left_out` names what is not kept because of them, and
    `aside` is where the damaged files are, once a sound one is in their place. Nothing is to be done if it `is_sound`.
    `whole_at` is the number of the last commit in what SQLite reads, if a full check finds that whole as it is, and
    `acknowledged` that of the last one that was acknowledged. `as_it_is` says that this was accepted.
    """

    path: Path
    pages: int | None = None
    mended: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    sessions: int = 0
    left_out: list[str] = field(default_factory=list)
    is_sound: bool = False
    whole_at: int | None = None
    acknowledged: int = 0
    as_it_is: bool = False
    aside: Path | None = None


def recover(path: Path, *, keep: bool, as_it_is: bool = False) -> Recovery:
    """Find what is whole, and with `keep` put a sound database in place of the damaged one, which is moved aside.

    With `as_it_is` the witness is not asked: what SQLite reads is kept if a full check finds it whole.

    Raises:
        Unavailable: `storage-in-use` while a server runs, `storage-damaged` if nothing can be read, or if it is not
            whole as it is, `storage-newer`, `storage-failed` if the files cannot be read or written, `disk-full`.
        NotFound: there is no database.

    """
    if not is_there(path):
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
    """Return whether a start takes the file."""
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
        return _count(connection, "sessions")


def _unrecoverable(found: Recovery, draft: Path, error: OSError | sqlite3.Error) -> Unavailable:
    if is_full(error, found.path):
        return disk_full(draft, error)
    if isinstance(error, OSError):
        return storage_inaccessible(found.path, error)
    fix = "put a copy of it in its place, together with the copy of its witness"
    if found.whole_at is not None:
        fix = (
            f"it is whole as it is, at commit {found.whole_at} of {found.acknowledged} that were acknowledged: "
            "--keep --as-it-is keeps that"
        )
    return Unavailable(
        f"no row of {found.path} can be reached through pages that are proven ({error}); nothing was changed: {fix}",
        code="storage-damaged",
    )


def _make(path: Path, draft: Path, found: Recovery) -> None:
    image = draft.with_name(draft.name + ".pages")
    remove_files(image)
    try:
        testimony = None if found.as_it_is else _believed(path, found)
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


def _believed(path: Path, found: Recovery) -> Testimony | None:
    """Return what the witness says of the pages, with the commits that follow in the log; None if it says nothing."""
    try:
        testimony = read_witness(path)
    except ValueError:
        return None
    if testimony is None or not path.exists() or not path.stat().st_size:  # SQLite removes the log of an empty file
        return testimony
    log = read_log(log_path(path), testimony.position)
    with closing(open_to_read(path)) as connection:
        if not fault(connection):
            found.whole_at, found.acknowledged = counted_commits(connection), testimony.commits
    if testimony.bad_at is not None and is_sound(path, testimony, log, bad_pages(path, testimony, log)):
        return None
    for appended in log.commits if log.follows(testimony.position) else ():
        testimony.take(testimony.commits, appended)
    return testimony


def _refuse_faults(path: Path, image: Path) -> None:
    with closing(sqlite3.connect(image)) as connection:
        finding = fault(connection)
    if finding:
        raise storage_damaged(path, f"it is not whole as it is: {finding}")


# --- pages ---


def _assemble(path: Path, testimony: Testimony, image: Path, found: Recovery) -> None:
    """Write the pages that are whole into `image`, and zeros for others."""
    size = testimony.page_bytes
    create_private(image)
    copies = _Copies(path, size)
    with image.open("wb") as file, closing(copies):
        for number, total in enumerate(testimony.sums, 1):
            candidates = list(copies.of(number))
            page = next((each for each in candidates if not total or page_sum(each) == total), None)
            if candidates and (page is None or page is not candidates[0]):
                page = page or next(filter(None, (turn_back(each, total) for each in candidates)), None)
                found.mended += [number] if page else []
            if page is None and total:
                found.lost.append(number)
            file.write(page or bytes(size))


class _Copies:
    """Copies of pages, those that SQLite would read first."""

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
    """Copy the file and what SQLite believes of its log."""
    create_private(image)
    image.write_bytes(path.read_bytes())
    if log_path(path).exists():
        log_path(image).write_bytes(log_path(path).read_bytes())


# --- rows ---


def _salvage(image: Path, draft: Path, found: Recovery) -> None:
    """Copy every row that can be read, session by session, into a new database."""
    with closing(sqlite3.connect(image)) as old:
        if old.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
            found.sessions = _count(old, "sessions")
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
                raise sqlite3.DatabaseError("what is left contradicts itself")
    remove_files(witness_path(draft))


def _count(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of rows, of a table that may not be there."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if table not in names:
        return 0
    counted: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a constant
    return counted


class _Salvage:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, found: Recovery) -> None:
        self._old, self._new, self._found = old, new, found

    def copy(self) -> None:
        self._new.execute("DELETE FROM store")
        for table in ("store", *_OWN_ROWS):
            self._copy_rows(table)
        if not _count(self._new, "store"):
            raise sqlite3.DatabaseError("the row that counts openings is lost, and with it which results are late")
        self._copy_sessions()
        self._copy_rows("events")

    def _copy_rows(self, table: str) -> None:
        """Copy a table up to the first row that cannot be read."""
        try:
            for row in self._rows(table, ""):
                self._insert(table, row)
        except sqlite3.DatabaseError:
            self._found.left_out.append(f"some {table}")

    def _copy_sessions(self) -> None:
        try:
            for row in self._rows("sessions", ""):
                self._copy_session(row)
        except sqlite3.DatabaseError:
            self._found.left_out.append("some sessions")

    def _copy_session(self, row: tuple[object, ...]) -> None:
        name, number = row[:2]
        order = ("submissions", "tasks", "claims", "attempts", "results", "payloads")
        try:
            rows = {table: list(self._rows(table, f"WHERE session = {number}")) for table in order}
        except sqlite3.DatabaseError:
            self._found.left_out.append(f"session {name}")
            return
        self._found.sessions += 1
        self._insert("sessions", row)
        for table in order:
            for each in rows[table]:
                self._insert(table, each)

    def _rows(self, table: str, where: str) -> Iterator[tuple[object, ...]]:
        names = ", ".join(f'"{column.name}"' for column in tables.METADATA.tables[table].columns)
        # The order is that of the table itself: an index may be what is damaged.
        yield from self._old.execute(f"SELECT {names} FROM {table} NOT INDEXED {where}")  # noqa: S608 - own names

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        names = ", ".join(f'"{column.name}"' for column in tables.METADATA.tables[table].columns)
        self._new.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - own names


# --- files ---


def _put_in_place(path: Path, draft: Path) -> Path:
    """Give the sound database a witness, and swap."""
    database = Database(draft)
    try:
        with database.transaction() as connection:
            counts = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(store)")}
        if "commits" in counts:
            database.begin_witness()
    finally:
        database.close()
    return swap(path)
