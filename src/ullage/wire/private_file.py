"""Files that are never partly written, even after a crash of the machine; only their owner may read most of them."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = ".new-"


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file through a temporary file: a reader finds the old content or the new one.

    With a `mode` others may read it.

    Raises:
        OSError: the file cannot be written; the old one stays.

    """
    descriptor, draft = tempfile.mkstemp(prefix=_PREFIX, dir=path.parent)  # readable by the owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, mode)
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
