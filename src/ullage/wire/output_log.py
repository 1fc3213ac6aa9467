"""The files of the output of a program or a worker, on disk at most `LIMIT` bytes for each stream.

A log is a chain of segments in one directory. The first segment has the name of the log, such as `1.out`. A later
segment has that name and the position of its first byte in the stream, such as `1.out.268435456`. A complete segment
is read-only. Once there are more than `SEGMENTS`, the writer removes the oldest; the first segment is emptied instead
of removed, so that its mode shows the state of the log. A position never changes its meaning.

User code runs as the same user and can replace any of these files. Writers and readers therefore open them relative to
their directory, without following links and without blocking, and use regular files only. The writer runs outside of
the process whose output it writes, so no program can pass the limit by printing.

This module uses the standard library only: the supervisor of the workers imports it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ullage.wire.log_times import TimesWriter, index_name, read_index

LIMIT = 1 << 30
"""The most bytes of one stream on disk."""

SEGMENTS = 4
"""The most segments of a log; the last `LIMIT - LIMIT / SEGMENTS` bytes are always kept."""

_DISK_BLOCK = 512
"""Bytes of a unit of `st_blocks`: stat(2)."""
_MAX_STEPS = 4 * SEGMENTS
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OPEN, _COMPLETE = 0o600, 0o400


class NotALog(OSError):
    """The path of a log leads to something that is not a regular file."""


class LogWriter:
    """Appends to the log `name` in `directory`; with `timed` an index says when its bytes were written.

    Raises:
        OSError: the directory or the file cannot be opened.

    """

    def __init__(self, directory: Path, name: str, limit: int = LIMIT, *, timed: bool = False) -> None:
        self._lost_bytes = 0
        self._why = ""
        self.name = name
        self._segment_bytes = max(1, limit // SEGMENTS)
        self._file: int | None = None
        self._start = self._size = 0
        self._directory = os.open(directory, _DIRECTORY)
        try:
            self._open()
        except BaseException:
            os.close(self._directory)
            raise
        self._times = TimesWriter(self._directory, name, self._changed_at()) if timed else None

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`.

        Bytes that cannot be written, as on a full disk, are lost. The next successful write states their number first.
        """
        if self._times is not None:
            self._times.note(time.time(), self._start + self._size)
        left = memoryview(data)
        while left:
            try:
                written = self._write(left)
            except OSError as error:
                self._lost_bytes += len(left)
                self._why = error.strerror or type(error).__name__
                return
            left = left[written:]

    def close(self) -> None:
        for descriptor in (self._file, self._directory):
            if descriptor is not None:
                os.close(descriptor)
        self._file = None

    def _write(self, data: memoryview) -> int:
        if self._lost_bytes:
            self._append(memoryview(f"[ullage: {self._lost_bytes} bytes are lost here: {self._why}]\n".encode()))
            self._lost_bytes = 0
        return self._append(data)

    def _append(self, data: memoryview) -> int:
        if self._file is None or self._size >= self._segment_bytes:
            self._begin_segment()
        assert self._file is not None
        written = os.write(self._file, data[: self._segment_bytes - self._size])
        self._size += written
        return written

    def _changed_at(self) -> float | None:
        """Return when an earlier writer wrote last; None if there was none."""
        if self._file is None or not self._start + self._size:
            return None
        return os.fstat(self._file).st_mtime

    def _begin_segment(self) -> None:
        if self._file is not None:
            os.fchmod(self._file, _COMPLETE)
            os.close(self._file)
            self._file = None
            self._start, self._size = self._start + self._size, 0
        self._file = self._create(_segment(self.name, self._start))
        starts = _starts(self._directory, self.name)
        for start in [start for start in starts if start <= self._start][:-SEGMENTS]:
            self._drop(start)

    def _drop(self, start: int) -> None:
        name = _segment(self.name, start)
        if start:
            os.unlink(name, dir_fd=self._directory)
            return
        empty = f".{name}.empty"
        with suppress(FileNotFoundError):
            os.unlink(empty, dir_fd=self._directory)
        os.close(os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, _COMPLETE, dir_fd=self._directory))
        os.rename(empty, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def _open(self) -> None:
        """Continue the log of an earlier writer; a file that is not ours is replaced."""
        with suppress(FileExistsError):
            self._file = self._create(self.name, replace=False)
            return
        try:
            self._start = _last_start(self._directory, self.name)
            name = _segment(self.name, self._start)
            facts = _facts(self._directory, name)
        except NotALog:
            name, facts = _segment(self.name, self._start), None
        if facts is None or facts.st_nlink > 1:
            self._file = self._create(name)
        elif facts.st_mode & stat.S_IWUSR:
            self._size = facts.st_size
            self._file = os.open(name, os.O_WRONLY | os.O_APPEND | _SAFE, dir_fd=self._directory)
        else:
            self._start += facts.st_size

    def _create(self, name: str, *, replace: bool = True) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE
        try:
            return os.open(name, flags, _OPEN, dir_fd=self._directory)
        except FileExistsError:
            if not replace:
                raise
        os.unlink(name, dir_fd=self._directory)
        return os.open(name, flags, _OPEN, dir_fd=self._directory)


class Piece(NamedTuple):
    """Bytes of a stream; `skipped` is the number of bytes before them that are no longer kept."""

    data: bytes
    skipped: int = 0


class LogReader:
    """Reads the log `name` in `directory` from `position` on; no file stays open between two reads."""

    def __init__(self, directory: Path, name: str, position: int = 0) -> None:
        self.position = position
        self._directory = directory
        self._name = name
        self._start: int | None = None if position else 0
        self._end: int | None = None

    def read(self, most: int) -> Piece:
        """Return the next bytes, at most `most`; none if there are no more yet.

        Raises:
            NotALog: the log was replaced by something else.

        """
        if self._end is not None:
            most = min(most, self._end - self.position)
        if most <= 0:
            return Piece(b"")
        with _opened(self._directory) as directory:
            if directory is None:
                return Piece(b"")
            before = self.position
            if self._end is not None and self._end - before > LIMIT:  # a writer of ours leaves no more than that
                self.position, self._start = self._end - LIMIT, None
            data = self._read(directory, most)
            self.position += len(data)
            return Piece(data, self.position - len(data) - before)

    def stop_at_end(self) -> None:
        """Read no further than the present end of the log, so that a writer cannot keep the reader reading."""
        self._end = self.end()

    def end(self) -> int:
        """Return the present end of the log.

        Raises:
            NotALog: the log was replaced by something else.

        """
        with _opened(self._directory) as directory:
            return 0 if directory is None else _end(directory, self._name)

    def position_since(self, since: float) -> int:
        """Return the position of the first byte that was written at `since`, in seconds since the epoch, or later.

        It may be that of bytes written up to the interval of the index before.

        Raises:
            NotALog: the log was replaced by something else.

        """
        with _opened(self._directory) as directory:
            if directory is None:
                return 0
            end = _end(directory, self._name)
            index = read_index(directory, self._name)
            if index is None:
                facts = _facts(directory, _segment(self._name, _last_start(directory, self._name)))
                return 0 if facts is None or facts.st_mtime >= since else end
            interval_s, entries = index
            return next((entry.position for entry in entries if entry.time > since - interval_s), end)

    def _read(self, directory: int, most: int) -> bytes:
        for _ in range(_MAX_STEPS):  # each step finds another segment; a writer may remove it before it is read
            if self._start is None:
                self._start = self._find(directory)
                if self._start is None:
                    return b""
            name = _segment(self._name, self._start)
            facts = _segment_facts(directory, name)
            end = self._start + (0 if facts is None else facts.st_size)
            if facts is not None and self._start <= self.position < end:
                if data := _pread(directory, name, self.position - self._start, most):
                    return data
                self._start = None
                continue
            if facts is not None and facts.st_mode & stat.S_IWUSR:
                return b""  # it is being written, and there is no more
            if facts is None and not self._start:
                return b""  # nothing is written yet
            if facts is not None and facts.st_size and self.position == end:
                if _facts(directory, _segment(self._name, end)) is None:
                    return b""  # the next segment does not exist yet
                self._start = end
            else:
                self._start = None
        return b""

    def _find(self, directory: int) -> int | None:
        """Return the start of the segment with the position, or move the position to the first segment after it."""
        for start in _starts(directory, self._name):
            facts = _segment_facts(directory, _segment(self._name, start))
            if facts is None:
                continue
            if self.position < start + facts.st_size:
                self.position = max(self.position, start)
                return start
            if self.position == start + facts.st_size and facts.st_mode & stat.S_IWUSR:
                return start
        return None


def read_tail(path: Path, most: int) -> bytes:
    """Return the last `most` bytes of the log at `path`; fewer if it has no more, none if there is no log."""
    try:
        with _opened(path.parent) as directory:
            position = 0 if directory is None else max(0, _end(directory, path.name) - most)
        reader = LogReader(path.parent, path.name, position)
        reader.stop_at_end()
        tail = b""
        while data := reader.read(most).data:
            tail += data
    except OSError:
        return b""
    return tail[-most:]


def log_bytes(path: Path) -> int:
    """Return how many bytes the log at `path` has on disk, without files that replaced its segments."""
    total = 0
    for directory, name in _segments(path):
        with suppress(NotALog):
            facts = _facts(directory, name)
            total += 0 if facts is None else min(facts.st_size, max(_most_of_segment(), _DISK_BLOCK * facts.st_blocks))
    return total


def remove_log(path: Path) -> None:
    """Remove every segment of the log at `path`; no error if there is none."""
    for directory, name in _segments(path):
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
    with suppress(OSError):
        path.with_name(index_name(path.name)).unlink()


def _segments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the segments of the log at `path`, each with the open directory that contains it."""
    with suppress(NotALog), _opened(path.parent) as directory:
        if directory is not None:
            for start in _starts(directory, path.name):
                yield directory, _segment(path.name, start)


@contextmanager
def _opened(directory: Path) -> Iterator[int | None]:
    """Yield a descriptor of a directory; None if it does not exist.

    Raises:
        NotALog: it is a link, or not a directory.

    """
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise NotALog(f"{directory} is not a directory of logs: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _segment(name: str, start: int) -> str:
    return f"{name}.{start}" if start else name


def _starts(directory: int, name: str) -> list[int]:
    """Return the positions where the segments of a log begin, in order."""
    starts = []
    for entry in os.listdir(directory):
        if entry == name:
            starts.append(0)
        elif entry.startswith(f"{name}.") and (digits := entry[len(name) + 1 :]).isascii() and digits.isdigit():
            starts.append(int(digits))
    return sorted(starts)


def _last_start(directory: int, name: str) -> int:
    """Return where the last segment begins; the directory is searched only if there may be more than one."""
    facts = _facts(directory, name)
    if facts is None or facts.st_mode & stat.S_IWUSR:
        return 0
    return _starts(directory, name)[-1]


def _end(directory: int, name: str) -> int:
    start = _last_start(directory, name)
    facts = _segment_facts(directory, _segment(name, start))
    return start + (0 if facts is None else facts.st_size)


def _facts(directory: int, name: str) -> os.stat_result | None:
    """Return the status of a regular file; None if there is no file of that name.

    Raises:
        NotALog: it is something else.

    """
    try:
        facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(facts.st_mode):
        raise NotALog(f"{name} is not a regular file: what it was replaced by is not read")
    if facts.st_uid != os.fstat(directory).st_uid:
        raise NotALog(f"{name} belongs to another user: what it was replaced by is not read")
    return facts


def _segment_facts(directory: int, name: str) -> os.stat_result | None:
    """Return the status of a segment; None if there is no file of that name.

    Raises:
        NotALog: it is something else, or larger than a writer makes it, such as a sparse file without an end.

    """
    facts = _facts(directory, name)
    if facts is not None and facts.st_size > _most_of_segment():
        raise NotALog(f"{name} has {facts.st_size} bytes, more than a log has: what else wrote to it is not read")
    return facts


def _most_of_segment() -> int:
    return LIMIT // SEGMENTS


def _pread(directory: int, name: str, offset: int, most: int) -> bytes:
    try:
        descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except FileNotFoundError:
        return b""  # removed meanwhile: the next read finds what follows
    except OSError as error:
        raise NotALog(f"{name} cannot be read as a regular file: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotALog(f"{name} is not a regular file: what it was replaced by is not read")
        return os.pread(descriptor, most, offset)
    finally:
        os.close(descriptor)
