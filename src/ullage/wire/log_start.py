"""Where a reader of a log starts: at its last lines, or at what was written since a time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ullage.wire.output_log import LogReader

_BLOCK = 64 * 1024


class LogStart(NamedTuple):
    """The part of a log that is wanted: its last `lines`, what was written since a time, or both; None is all."""

    lines: int | None = None
    since: float | None = None

    def position(self, directory: Path, name: str) -> int:
        """Return the position of the first byte that is wanted of the log `name`.

        Raises:
            NotALog: the log was replaced by something else.

        """
        found = 0 if self.since is None else LogReader(directory, name).position_since(self.since)
        return found if self.lines is None else max(found, _position_of_lines(directory, name, self.lines))


def _position_of_lines(directory: Path, name: str, lines: int) -> int:
    """Return where the last `lines` lines begin. An unfinished last line counts."""
    end = LogReader(directory, name).end()
    left, begin = lines, end
    while begin and left:
        start = max(0, begin - _BLOCK)
        data, dropped = _read(directory, name, start, begin)
        at = len(data)
        if begin == end and data.endswith(b"\n"):
            at -= 1  # the end of the last line, which begins no further one
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if not left:
                return begin - len(data) + at + 1
        if dropped:
            return begin - len(data)
        begin = start
    return 0 if lines else end


def _read(directory: Path, name: str, start: int, end: int) -> tuple[bytes, bool]:
    """Return the kept bytes from `start` to `end`, and whether earlier ones of these are no longer kept."""
    reader = LogReader(directory, name, start)
    data, dropped = b"", False
    while reader.position < end:
        piece = reader.read(end - reader.position)
        if not piece.data:
            break
        dropped |= bool(piece.skipped)
        data = piece.data if piece.skipped else data + piece.data
    return data, dropped
