"""The errors of this layer, with a fix for operators."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ullage.model.error import DiskFull, Unavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PRIMARY = 0xFF
"""Extended result codes of SQLite have the primary one in their lowest byte."""

_LITTLE_BYTES = 256 * 1024
"""Free bytes below which an I/O error at a start counts as a full disk."""


def storage_failed(what: str, cause: BaseException) -> Unavailable:
    """Return the error of a store that accepts no more writes: code `storage-failed`."""
    error = Unavailable(
        f"the store failed and accepts no more writes ({what}: {describe(cause)}); fix the cause and start again:"
        " all acknowledged writes are stored",
        code="storage-failed",
    )
    error.__cause__ = cause
    return error


def disk_full(path: object, cause: BaseException) -> DiskFull:
    """Return the error of a full disk: code `disk-full`."""
    error = DiskFull(
        f"the disk of the server is full: {path} cannot be written ({describe(cause)}); free space on its file system"
    )
    error.__cause__ = cause
    return error


def storage_unreadable(what: str, cause: BaseException) -> Unavailable:
    """Return the error of a failed read: code `storage-failed`."""
    return Unavailable(f"the store cannot be read ({what}: {describe(cause)})", code="storage-failed")


def storage_inaccessible(path: object, cause: OSError) -> Unavailable:
    """Return the error of files that cannot be accessed: code `storage-failed`."""
    return Unavailable(
        f"{cause.filename or path} cannot be read or written ({cause.strerror or cause}); the store and its directory "
        "must belong to the user of the server, on a local disk",
        code="storage-failed",
    )


def storage_closed() -> Unavailable:
    """Return the error of a store that is closed or not loaded yet: code `storage-closed`."""
    return Unavailable("the store is not open; nothing was written", code="storage-closed")


def storage_damaged(path: object, finding: str) -> Unavailable:
    """Return the error of a damaged file: code `storage-damaged`."""
    return Unavailable(
        f"{path} is damaged or is not an Ullage database ({finding}); nothing was changed: "
        f"`ullage recover {path}` lists the intact records, and keeps them with --keep",
        code="storage-damaged",
    )


def storage_changed(path: object, finding: str) -> Unavailable:
    """Return the error of an intact database with all acknowledged records that another program has changed."""
    return Unavailable(
        f"{path} differs from the last state of the server ({finding}), though SQLite finds no error: another "
        "program has written to it, or stored values were damaged; nothing was changed: "
        f"`ullage recover {path}` lists the intact records; --keep --as-it-is accepts the file",
        code="storage-damaged",
    )


def is_full(cause: BaseException, path: Path | None = None) -> bool:
    """Return whether an error means a full disk; with `path` also an I/O error on an almost full disk."""
    cause = getattr(cause, "orig", None) or cause
    if isinstance(cause, OSError):
        return cause.errno in _FULL
    code = getattr(cause, "sqlite_errorcode", 0) & _PRIMARY
    if code == sqlite3.SQLITE_FULL:
        return True
    if path is None or code not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return False
    room = os.statvfs(path.parent)
    return room.f_bavail * room.f_frsize < _LITTLE_BYTES


def is_damage(cause: sqlite3.Error) -> bool:
    """Return whether an error of SQLite is about the content of the file, not about access to it."""
    code = getattr(cause, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def describe(cause: BaseException) -> str:
    """Return the message of the driver, without the statement and its parameters, which contain users' data."""
    origin = getattr(cause, "orig", None)
    return str(origin if origin is not None else cause) or type(cause).__name__
