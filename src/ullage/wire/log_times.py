"""When the bytes of a log were written: an index of times and positions, for readers that want the last ten minutes.

The index of the log `1.out` is the file `1.out.times` in the same directory. It starts with the seconds between two
entries; an entry is a time, in seconds since the epoch, and the position of the first byte written then. A log that was
written within one interval has no index, because the time of its last change suffices. An index with `MOST` entries
loses every second one, and its interval doubles, so that it has at most 128 KiB.

This module uses the standard library only, as `output_log.py` does.
"""

from __future__ import annotations

import os
import stat
import struct
from contextlib import suppress
from typing import NamedTuple

MOST = 8192
"""The most entries of an index."""

INTERVAL_S = 1.0
"""Seconds between two entries of a new index."""

_HEAD = struct.Struct("<d")
_ENTRY = struct.Struct("<dQ")
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MOST_BYTES = _HEAD.size + 2 * MOST * _ENTRY.size


class Entry(NamedTuple):
    """`position` is that of the first byte that was written at `time` or later, until the next entry."""

    time: float
    position: int


class TimesWriter:
    """Keeps the index of the log `name` in the open `directory`. An index that cannot be written is not continued.

    `changed_at` is when an earlier writer wrote last, if there was one.
    """

    def __init__(self, directory: int, name: str, changed_at: float | None) -> None:
        self._directory = directory
        self._name = index_name(name)
        self._interval_s = INTERVAL_S
        # Not written yet: the log may end within its interval.
        self._first = None if changed_at is None else Entry(changed_at, 0)
        self._count = 0
        self._due = 0.0
        found = read_index(directory, name)
        if found is not None:
            self._interval_s, entries = found
            self._count = len(entries)

    def note(self, now: float, position: int) -> None:
        """Record that the byte at `position` is written now."""
        if now < self._due:
            return
        self._due = now + self._interval_s
        entry = Entry(now, position)
        if self._first is None and not self._count and not position:
            self._first = entry
            return
        try:
            self._append(entry)
        except OSError:
            self._due = float("inf")

    def _append(self, entry: Entry) -> None:
        entries = [entry]
        if not self._count:
            entries.insert(0, self._first or entry._replace(position=0))
        if self._count + len(entries) > MOST:
            self._thin()
        data = b"" if self._count else _HEAD.pack(self._interval_s)
        data += b"".join(_ENTRY.pack(*each) for each in entries)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE
        file = os.open(self._name, flags, 0o600, dir_fd=self._directory)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                os.write(file, data)
                self._count += len(entries)
        finally:
            os.close(file)

    def _thin(self) -> None:
        """Write an index of every second entry, with twice the interval, in place of this one."""
        _, entries = _read(self._directory, self._name) or (self._interval_s, [])
        self._interval_s *= 2
        kept = entries[::2]
        new = f".{self._name}.new"
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=self._directory)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=self._directory)
        try:
            os.write(file, _HEAD.pack(self._interval_s) + b"".join(_ENTRY.pack(*each) for each in kept))
        finally:
            os.close(file)
        os.rename(new, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._count = len(kept)


def index_name(log: str) -> str:
    """Return the name of the index of a log."""
    return f"{log}.times"


def read_index(directory: int, log: str) -> tuple[float, list[Entry]] | None:
    """Return the interval and the entries of an index; None if the log has none."""
    try:
        return _read(directory, index_name(log))
    except OSError:
        return None


def _read(directory: int, name: str) -> tuple[float, list[Entry]] | None:
    file = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        data = os.read(file, _MOST_BYTES)
    finally:
        os.close(file)
    if len(data) < _HEAD.size:
        return None
    (interval_s,) = _HEAD.unpack_from(data)
    whole = (len(data) - _HEAD.size) // _ENTRY.size * _ENTRY.size
    return interval_s, [Entry(*each) for each in _ENTRY.iter_unpack(data[_HEAD.size : _HEAD.size + whole])]
