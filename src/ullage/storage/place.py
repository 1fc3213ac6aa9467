"""Where a store lies, by its URL in the settings: reading these needs no database."""

from __future__ import annotations

import os
from pathlib import Path

from ullage.model.error import invalid

MEMORY = "memory://"
_SQLITE = "sqlite:///"


def path_of(url: str, field: str = "storage") -> Path | None:
    """Return the file of a store by its URL, as `open_store` takes it; None for one in memory.

    Raises:
        InvalidRequest: the URL has another scheme, or no path.

    """
    if url == MEMORY:
        return None
    path = url.removeprefix(_SQLITE)
    if not path or "\0" in path or "://" in path or path.endswith("/"):
        raise invalid(field, url, f"give a path to a file, {_SQLITE}path or {MEMORY}")
    # One name per file: links and relative names must use the same lock.
    return Path(os.path.realpath(Path(path).expanduser()))
