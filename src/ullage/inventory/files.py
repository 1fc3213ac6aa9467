"""Small files of the kernel, read with limits, so that no file can flood or block the reader."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

MAX_BYTES = 1 << 20
"""Bytes of the largest file; the kernel writes no longer ones, so they count as unreadable."""

_NUMBER = re.compile(r"-?[0-9]{1,18}|0x[0-9a-f]{1,15}", re.ASCII)


def read_text(path: Path) -> str | None:
    """Return the text of a regular file without surrounding blanks; None if it cannot be read."""
    try:
        # A blocking open of a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            found = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    return None if len(found) > MAX_BYTES else found.decode("utf-8", "replace").strip()


def read_number(path: Path) -> int | None:
    """Return the whole number in a file, decimal or as `0x10de`; None if there is none."""
    text = read_text(path)
    return int(text, 0 if "x" in text else 10) if text is not None and _NUMBER.fullmatch(text) else None


def list_names(directory: Path, most: int) -> list[str] | None:
    """Return names in a directory, sorted; None if it cannot be read or holds more than `most`."""
    names: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) > most:
                    return None
    except OSError:
        return None
    return sorted(names)
