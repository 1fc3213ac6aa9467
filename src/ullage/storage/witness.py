"""The witness: a file with the sum of each page of a database, which each commit updates.

SQLite detects damage to the structure of a file, not to its content, and ignores everything after a damaged frame of
its write-ahead log. The witness is written before a commit is acknowledged. So the next start detects pages that
differ from the last written state, and missing commits.

The file has a base, with the sums of all pages, and a record for each later commit. An incomplete record ends the file.
A power failure may lose the records of the last second. The log has their commits: it is synced before a commit is
acknowledged, and it restarts only after the records are synced.
"""

from __future__ import annotations

import os
import struct
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from ullage.storage.lock import OWNER_ONLY
from ullage.storage.wal import FRAME_HEADER_BYTES, START, Appended, Position, log_path, read_appended

_MAGIC = b"Ullage witness 1"
_FACTS = struct.Struct("<IIQ8sQI")  # bytes of a page, pages, commits, and the position in the log: salts, end, CRC
_RECORD = struct.Struct("<II")  # bytes of the body, its CRC
_COMMIT = struct.Struct("<QI8sQI")  # commits, pages, and the position
LOG_PAGES = 4096
"""Pages in the log from which on SQLite checkpoints it, and may restart it."""

_MOST_UNSYNCED_S = 1.0
_MOST_LOG_BYTES = 4 * 1024 * 1024
_ROOM_BYTES = 1024 * 1024
"""Bytes allocated ahead of the records, so that a record changes no metadata and a full disk is detected early."""


@dataclass(slots=True)
class Testimony:
    """The content of a witness: a sum per page (0: never written), and the commits since its base.

    `bad_at` is the offset of the first incomplete record, None without one.
    """

    page_bytes: int
    sums: array[int]
    commits: int
    position: Position = START
    seen: list[tuple[int, Position]] = field(default_factory=list)
    bad_at: int | None = None

    def apply(self, commits: int, appended: Appended) -> None:
        """Apply the pages of a commit."""
        sums, missing = self.sums, appended.pages - len(self.sums)
        if missing > 0:
            sums.frombytes(bytes(missing * sums.itemsize))
        elif missing:
            del sums[appended.pages :]
        for page, total in appended.sums.items():
            if page <= appended.pages:
                sums[page - 1] = total
        self.commits, self.position = commits, appended.position
        self.seen.append((commits, appended.position))


def witness_path(database: Path) -> Path:
    """Return the path of the witness of a database."""
    return database.with_name(database.name + "-witness")


def read_witness(database: Path) -> Testimony | None:
    """Return the content of the witness of a database; None without a witness.

    Raises:
        ValueError: its base is damaged.

    """
    try:
        data = witness_path(database).read_bytes()
    except FileNotFoundError:
        return None
    at = len(_MAGIC) + _FACTS.size
    if len(data) < at or not data.startswith(_MAGIC):
        raise ValueError("it does not begin like a witness")
    page_bytes, pages, commits, *position = _FACTS.unpack_from(data, len(_MAGIC))
    sums = array("I")
    end = at + pages * sums.itemsize
    if data[end : end + 4] != crc32(data[:end]).to_bytes(4, "little"):
        raise ValueError("the sum of its base is wrong")
    sums.frombytes(data[at:end])
    found = Testimony(page_bytes, sums, commits, Position(*position))
    _read_records(found, data, end + 4)
    return found


def _read_records(found: Testimony, data: bytes, at: int) -> None:
    while at + _RECORD.size <= len(data):
        size, crc = _RECORD.unpack_from(data, at)
        body = data[at + _RECORD.size : at + _RECORD.size + size]
        if not size:
            return
        if size < _COMMIT.size or len(body) < size or crc32(body) != crc:
            found.bad_at = at
            return
        commits, pages, *position = _COMMIT.unpack_from(body)
        numbers = struct.unpack_from(f"<{(size - _COMMIT.size) // 4}I", body, _COMMIT.size)
        found.apply(commits, Appended(Position(*position), pages, dict(zip(numbers[::2], numbers[1::2], strict=True))))
        at += _RECORD.size + size


class Witness:
    """The witness of an open database, for one thread.

    Raises (from all methods):
        OSError: the file cannot be written.

    """

    def __init__(self, database: Path, testimony: Testimony) -> None:
        self._database = database
        self._testimony = testimony
        self._log = os.open(log_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        self._file = -1
        self._end = self._room = self._most = 0
        self._unwritten = b""
        self._unsynced_since: float | None = None
        try:
            # SQLite ignores an unfinished write after the last commit; later readers must not see it as a commit.
            os.ftruncate(self._log, testimony.position.end)
            self._write_base()
        except BaseException:
            self.close()
            raise

    def allocate(self) -> None:
        """Allocate space for the next record, before the transaction."""
        if self._unsynced_since is not None and self._must_sync(self._unsynced_since):
            self.sync()
        if self._end + _ROOM_BYTES > self._room:
            os.posix_fallocate(self._file, self._end, 2 * _ROOM_BYTES)
            self._room = self._end + 2 * _ROOM_BYTES

    def attest(self, commits: int) -> None:
        """Sync the log, then write a record of the transaction that was just committed.

        So a record on the disk proves its commit: after a power failure the log has every commit of the witness.
        After an error, call it again before the next commit. `sync` follows later.
        """
        if not self._unwritten:
            self._unwritten = self._record(commits)
        if not self._unwritten:
            return
        os.fdatasync(self._log)
        _write_all(self._file, self._unwritten, self._end)
        self._end += len(self._unwritten)
        self._unwritten = b""
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    @property
    def is_synced(self) -> bool:
        """Whether all records are on the disk."""
        return self._unsynced_since is None

    def sync(self) -> None:
        """Sync the records."""
        if self._end > self._most:
            self._write_base()
        elif self._unsynced_since is not None:
            os.fdatasync(self._file)
        self._unsynced_since = None

    def _must_sync(self, since: float) -> bool:
        log_bytes = LOG_PAGES * (FRAME_HEADER_BYTES + self._testimony.page_bytes)
        grown = self._testimony.position.end >= log_bytes or self._end > self._most
        return grown or time.monotonic() - since > _MOST_UNSYNCED_S

    def renew(self, testimony: Testimony) -> bool:
        """Replace the content after another program changed pages. Return whether it differs."""
        before = self._testimony
        if (before.position, before.sums) == (testimony.position, testimony.sums):
            return False
        try:
            self._testimony = testimony
            self._write_base()
        except BaseException:
            self._testimony = before
            raise
        return True

    def _record(self, commits: int) -> bytes:
        """Return the record of the last transaction; empty if it wrote nothing."""
        appended = read_appended(self._log, self._testimony.position, self._testimony.page_bytes)
        if appended is None:
            return b""
        self._testimony.apply(commits, appended)
        self._testimony.seen.clear()
        position = appended.position
        numbers = [number for item in appended.sums.items() for number in item]
        body = _COMMIT.pack(commits, appended.pages, position.salts, position.end, position.crc)
        body += struct.pack(f"<{len(numbers)}I", *numbers)
        return _RECORD.pack(len(body), crc32(body)) + body

    def close(self) -> None:
        """Sync the records if possible, and close the files."""
        if self._unsynced_since is not None:
            with suppress(OSError):
                self.sync()
        for descriptor in (self._file, self._log):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._log = -1

    def _write_base(self) -> None:
        """Replace the file atomically by one with a base only."""
        path = witness_path(self._database)
        draft = path.with_name(path.name + ".new")
        content, position = self._testimony, self._testimony.position
        facts = content.page_bytes, len(content.sums), content.commits, position.salts, position.end, position.crc
        base = _MAGIC + _FACTS.pack(*facts) + content.sums.tobytes()
        base += crc32(base).to_bytes(4, "little")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
        try:
            os.posix_fallocate(descriptor, 0, len(base) + 2 * _ROOM_BYTES)
            _write_all(descriptor, base, 0)
            os.fsync(descriptor)
            draft.replace(path)
            sync_path(path.parent)
        except BaseException:
            os.close(descriptor)
            draft.unlink(missing_ok=True)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = descriptor
        self._end = len(base)
        self._room = len(base) + 2 * _ROOM_BYTES
        self._most = self._end + max(_MOST_LOG_BYTES, len(base))


def sync_path(path: Path) -> None:
    """Sync the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
