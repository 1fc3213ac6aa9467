"""A line of Ullage in the log of a task.

This module uses the standard library only.
"""

from __future__ import annotations

from pathlib import Path

from ullage.wire.output_log import read_tail


def note_line(log: Path, text: str) -> bytes:
    """Return the bytes to append to the log at this path, so that the text has a line of its own."""
    begin = b"" if read_tail(log, 1) in (b"", b"\n") else b"\n"
    return b"%sullage: %s\n" % (begin, text.encode(errors="replace"))
