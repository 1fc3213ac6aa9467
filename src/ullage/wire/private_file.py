"""Files that only their owner may read, and that are never partly written, even after a crash of the machine."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = ".new-"


def write_private(path: Path, content: bytes) -> None:
    """Write a file through a temporary file: a reader finds the old content or the new one.

    Raises:
        OSError: the file cannot be written; the old one stays.

    """
    descriptor, draft = tempfile.mkstemp(prefix=_PREFIX, dir=path.parent)  # readable by the owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(draft).unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
