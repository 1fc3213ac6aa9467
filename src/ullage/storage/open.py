"""Stores by their URL in the settings."""

from __future__ import annotations

from ullage.service.store_port import Store
from ullage.storage.place import path_of
from ullage.storage.store import SqliteStore


def open_store(url: str) -> Store:
    """Return the store at `url`: a path, `sqlite:///path` (relative) or `sqlite:////path`, or `memory://`.

    `load` of the store creates the file. Missing directories are created now, for their owner only.

    Raises:
        InvalidRequest: the URL has another scheme, or no path.
        Unavailable: another process has the store open, or the directory cannot be written.

    """
    return SqliteStore(path_of(url))
