"""The check of the database of a local server: its place, size, schema revision and content. Nothing changes."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ullage.bootstrap.settings import read_settings
from ullage.client.endpoint import ServerPlace
from ullage.model.error import Unavailable
from ullage.storage.check import check_file, refuse_newer
from ullage.storage.foreign_changes import integrity_error, open_to_read
from ullage.storage.place import path_of
from ullage.storage.schema import REVISION_TABLE, known_revisions
from ullage.storage.wal import log_path
from ullage.storage.witness import witness_path
from ullage.wire.finding import BAD, OK, WARN, Finding

_COPIES = 2
"""A migration and a recovery write a second database beside the first one."""


def database_path(place: ServerPlace) -> Path | None:
    """Return the database that the settings of a server name; None if they keep the state in memory.

    Raises:
        InvalidRequest: the settings are not valid.

    """
    settings = read_settings(place.settings, os.environ)
    return path_of(settings.server.storage or str(place.home / "state.db"))


def check_database(place: ServerPlace) -> Iterator[Finding]:
    """Check that the database can be used by this version and is intact, and that there is room for a copy of it.

    While a server has it open, SQLite checks it; else the file is also compared with its witness.
    """
    path = database_path(place)
    if path is None:
        yield Finding("database", OK, "the settings keep the state in memory alone")
        return
    if not path.exists():
        yield Finding("database", OK, f"there is no {path} yet; the first server creates it")
        return
    size = sum(each.stat().st_size for each in (path, log_path(path), witness_path(path)) if each.exists())
    in_use = _is_in_use(path)
    try:
        if in_use:
            refuse_newer(path)
            fault = _fault(path)
        else:
            check_file(path)
            fault = ""
        revision = _revision(path)
    except Unavailable as error:
        fix = f"`ullage recover {path}` shows what is intact" if error.code == "storage-damaged" else ""
        yield Finding("database", BAD, error.message, fix)
        return
    except sqlite3.Error as error:
        yield Finding(
            "database", BAD, f"{path} cannot be read: {error}", f"`ullage recover {path}` shows what is intact"
        )
        return
    if fault:
        yield Finding("database", BAD, f"{path}: {fault}", "`ullage down`, then `ullage recover` shows what is intact")
        return
    newest = known_revisions()[-1]
    schema = f"schema revision {revision}" if revision == newest else f"schema revision {revision} of {newest}"
    used = ", in use by a server" if in_use else ""
    later = "" if revision == newest else "; the next start of a server migrates it"
    yield Finding("database", OK, f"{path}: {_size_text(size)}, {schema}, a full check finds no error{used}{later}")
    free = shutil.disk_usage(path.parent).free
    if free < _COPIES * size:
        text = f"{_size_text(free)} free beside {path}, which has {_size_text(size)}"
        yield Finding("database", WARN, text, "free disk space: a migration and a recovery need a copy of it")


def _is_in_use(path: Path) -> bool:
    """Return whether a server has the lock of the database."""
    try:
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _fault(path: Path) -> str:
    with closing(open_to_read(path)) as connection:
        return integrity_error(connection)


def _revision(path: Path) -> str | None:
    with closing(open_to_read(path)) as connection:
        row = connection.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchone()  # noqa: S608 - a constant
    return row[0] if row else None


def _size_text(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size < 1 << 30 else f"{size / (1 << 30):.1f} GiB"
