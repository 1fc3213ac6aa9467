"""The log of a server in the background, of limited size: a full log is renamed.

It replaces the log that was renamed before, so there are at most two files.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 16 << 20
"""Bytes of a log after which the next line begins a new file."""

_OUTPUTS = (1, 2)


def is_standard_error(path: Path) -> bool:
    """Return whether standard error of this process is that file."""
    try:
        return os.path.samestat(os.fstat(sys.stderr.fileno()), path.stat())
    except (OSError, ValueError, AttributeError):  # ValueError: not a file of the system; AttributeError: it is closed
        return False


def move_if_full(path: Path) -> None:
    """Rename the file if it is full, and redirect the output of this process to a new one. Raises no error."""
    with suppress(OSError, ValueError):
        if os.fstat(sys.stderr.fileno()).st_size < MOST_BYTES:
            return
        sys.stderr.flush()
        path.replace(path.with_name(f"{path.name}.1"))
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for output in _OUTPUTS:
            os.dup2(opened, output)
        os.close(opened)
