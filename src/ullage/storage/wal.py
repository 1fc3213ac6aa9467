"""The write-ahead log of SQLite: the pages of each commit, and the commits that SQLite will accept.

The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log. Frames are chained by a checksum.
SQLite stops at the first frame with a wrong checksum, and ignores the rest as an older run.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
_CHUNK_FRAMES = 256
_FEW_FRAMES = 16
"""Frames of a usual commit, for which little memory is allocated."""

_MANY_FRAMES = 1024
"""Frames of further reads: each read waits for the interpreter lock, which a busy event loop returns late."""

_MASK = 0xFFFFFFFF
_FRAME = struct.Struct(">II8s")  # page, pages of the database if it ends a commit, salts


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a commit in a log: the salts of the run, the offset in bytes, the CRC-32 of all bytes before it."""

    salts: bytes = b"\0" * 8
    end: int = 0
    crc: int = 0


START = Position()
"""The position in a log that is empty or missing."""


@dataclass(slots=True)
class Appended:
    """The pages that one commit appended, with their sums, and the number of pages of the database after it."""

    position: Position
    pages: int
    sums: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class WriteAheadLog:
    """The content of a log: the commits that SQLite accepts after a known position, and whether that one is intact.

    `pages` are those of the whole log up to the last accepted commit. `torn_bytes` follow it in the same run.
    """

    salts: bytes = b""
    known_is_whole: bool = False
    pages: set[int] = field(default_factory=set)
    commits: list[Appended] = field(default_factory=list)
    torn_bytes: int = 0

    def follows(self, known: Position) -> bool:
        """Return whether its commits follow those up to `known`: it is the same run of the log, the next or first."""
        if self.salts == known.salts:
            return self.known_is_whole or not known.end
        # SQLite increments the first salt.
        return not self.salts or not known.end or _first(self.salts) == (_first(known.salts) + 1) & _MASK


def _first(salts: bytes) -> int:
    return int.from_bytes(salts[:4])


def log_path(database: Path) -> Path:
    """Return the path of the write-ahead log of a database."""
    return database.with_name(database.name + "-wal")


def page_sum(page: bytes | memoryview) -> int:
    """Return the sum of a page; never 0, which means a page that no commit wrote."""
    return crc32(page) or 1


def file_sums(file: BinaryIO, page_bytes: int) -> array[int]:
    """Return the sum of each page of a database file."""
    sums = array("I")
    file.seek(0)
    while chunk := memoryview(file.read(_CHUNK_FRAMES * page_bytes)):
        sums.extend(page_sum(chunk[at : at + page_bytes]) for at in range(0, len(chunk), page_bytes))
    return sums


def read_appended(descriptor: int, known: Position, page_bytes: int) -> Appended | None:
    """Return the pages that the commit after `known` appended to the open log; None if it wrote nothing."""
    header = os.pread(descriptor, HEADER_BYTES, 0)
    if len(header) < HEADER_BYTES:
        return None
    salts = header[16:24]
    if salts != known.salts or not known.end:
        known = Position(salts, HEADER_BYTES, crc32(header))
    found = Appended(known, 0)
    offset, crc = known.end, known.crc
    frame_bytes, frames = FRAME_HEADER_BYTES + page_bytes, _FEW_FRAMES
    while True:
        chunk = memoryview(os.pread(descriptor, frames * frame_bytes, offset))
        frames = _MANY_FRAMES
        for start in range(0, len(chunk) - frame_bytes + 1, frame_bytes):
            frame = chunk[start : start + frame_bytes]
            page, pages, run = _FRAME.unpack_from(frame)
            if run != salts:
                return None
            crc = crc32(frame, crc)  # frame by frame: zlib releases the interpreter lock for larger data
            found.sums[page] = crc32(frame[FRAME_HEADER_BYTES:]) or 1
            if pages:
                found.position = Position(salts, offset + start + frame_bytes, crc)
                found.pages = pages
                return found
        used = len(chunk) // frame_bytes * frame_bytes
        if not used:
            return None
        offset += used


def read_log(path: Path, known: Position = START) -> WriteAheadLog:
    """Read a log as SQLite does when it opens a database. Without a valid header the log is empty."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
            if not _is_sound(header):
                return WriteAheadLog()
            return _Reader(file.fileno(), header).read(known)
    except FileNotFoundError:
        return WriteAheadLog()


class _Reader:
    def __init__(self, descriptor: int, header: bytes) -> None:
        self._descriptor = descriptor
        magic, _, self._page_bytes = struct.unpack_from(">III", header)
        self._order = _MAGIC[magic]
        self._header = header
        self._salts = header[16:24]
        self._size = os.fstat(descriptor).st_size

    def read(self, known: Position) -> WriteAheadLog:
        log = WriteAheadLog(self._salts)
        position = Position(self._salts, HEADER_BYTES, crc32(self._header))
        seed: tuple[int, int] = struct.unpack_from(">II", self._header, 24)
        if known.salts == self._salts and known.end:
            crc, pages, last = self._walk(known.end)
            log.known_is_whole = crc == known.crc
            if log.known_is_whole:
                log.pages, position = pages, known
                seed = struct.unpack_from(">II", last, 16) if last else seed
        self._read_rest(log, position, seed)
        return log

    def _walk(self, end: int) -> tuple[int, set[int], bytes]:
        """Return the CRC of the bytes before `end`, the pages in them and the header of the last frame."""
        crc, pages, last = crc32(self._header), set(), b""
        for _, frame in self._frames(HEADER_BYTES, end):
            last = bytes(frame[:FRAME_HEADER_BYTES])
            pages.add(int.from_bytes(last[:4]))
            crc = crc32(frame, crc)
        return crc, pages, last

    def _read_rest(self, log: WriteAheadLog, position: Position, seed: tuple[int, int]) -> None:
        """Follow the chain of checksums from `position`, as SQLite does."""
        crc, sums = position.crc, {}
        end = position.end
        for offset, frame in self._frames(position.end, self._size):
            header = frame[:FRAME_HEADER_BYTES]
            seed = _chain(frame[FRAME_HEADER_BYTES:], _chain(header[:8], seed, self._order), self._order)
            if header[8:16] != self._salts:
                break
            end = min(offset + len(frame), self._size)
            if len(frame) < FRAME_HEADER_BYTES + self._page_bytes or seed != struct.unpack_from(">II", header, 16):
                break
            page, pages = struct.unpack_from(">II", header)
            sums[page] = page_sum(frame[FRAME_HEADER_BYTES:])
            crc = crc32(frame, crc)
            if pages:
                position = Position(self._salts, end, crc)
                log.commits.append(Appended(position, pages, sums))
                log.pages |= sums.keys()
                sums = {}
        log.torn_bytes = end - position.end

    def _frames(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        frame_bytes = FRAME_HEADER_BYTES + self._page_bytes
        while start < end:
            chunk = memoryview(os.pread(self._descriptor, min(_CHUNK_FRAMES * frame_bytes, end - start), start))
            if not chunk:
                return
            for at in range(0, len(chunk), frame_bytes):
                yield start + at, chunk[at : at + frame_bytes]
            start += len(chunk)


def _is_sound(header: bytes) -> bool:
    if len(header) < HEADER_BYTES:
        return False
    order = _MAGIC.get(int.from_bytes(header[:4]))
    return order is not None and _chain(header[:24], (0, 0), order) == struct.unpack_from(">II", header, 24)


def _chain(data: bytes | memoryview, seed: tuple[int, int], order: str) -> tuple[int, int]:
    """Return the checksum of SQLite over `data`, a whole number of pairs of words."""
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 8 * 2}I", data[: len(data) // 8 * 8])
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & _MASK
        second = (second + words[at + 1] + first) & _MASK
    return first, second
