"""Noticing that the last process died in the middle of a write.

SQLite ignores what stands in the write-ahead log after the last whole transaction. That is right,
as none of it was acknowledged, but it is not done in silence: the log is read once before opening.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_LOG = logging.getLogger(__name__)


def warn_of_torn_tail(path: Path) -> None:
    """Log a warning if the write-ahead log of `path` ends in an unfinished transaction."""
    torn = torn_bytes(path.with_name(path.name + "-wal"))
    if torn:
        _LOG.warning("%s: %d bytes of an unfinished write were cut off after the last commit", path, torn)


def torn_bytes(log: Path) -> int:
    """Bytes that follow the last commit in a write-ahead log and belong to the same run of the log.

    Frames of an earlier run (other salts) are what the log is overwriting, not a torn write. A log
    that is missing or shorter than its header has none.
    """
    try:
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES:
                return 0
            page_bytes, salts = struct.unpack_from(">I", header, 8)[0], header[16:24]
            committed = position = _HEADER_BYTES
            while len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES and frame[8:16] == salts:
                end = position + _FRAME_HEADER_BYTES + page_bytes
                file.seek(end)
                if end > log.stat().st_size:
                    return log.stat().st_size - committed
                position = end
                # A commit frame says how many pages the database has after it.
                if frame[4:8] != b"\0\0\0\0":
                    committed = position
    except FileNotFoundError:
        return 0
    return position - committed
