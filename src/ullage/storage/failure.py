"""The errors this layer raises, in words a person can act on."""

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
"""Free room below which an I/O error at a start is taken for a full disk."""


def storage_failed(what: str, cause: BaseException) -> Unavailable:
    """Return the error of a store that cannot go on: code `storage-failed`."""
    error = Unavailable(
        f"the store failed and takes no more writes ({what}: {describe(cause)}); mend the cause, then start again:"
        " everything acknowledged so far is kept",
        code="storage-failed",
    )
    error.__cause__ = cause
    return error


def disk_full(path: object, cause: BaseException) -> DiskFull:
    """There is no room for `path`: code `disk-full`."""
    error = DiskFull(
        f"the disk of the server is full: {path} cannot be written ({describe(cause)}); make room on its file system"
    )
    error.__cause__ = cause
    return error


def storage_unreadable(what: str, cause: BaseException) -> Unavailable:
    """Return the error of a failed read: code `storage-failed`."""
    return Unavailable(f"the store cannot be read ({what}: {describe(cause)})", code="storage-failed")


def storage_inaccessible(path: object, cause: OSError) -> Unavailable:
    """Return the error where the system does not let the files be read or written: code `storage-failed`."""
    return Unavailable(
        f"{cause.filename or path} cannot be read or written ({cause.strerror or cause}); the store and its directory "
        "must belong to the user of the server, on a local disk",
        code="storage-failed",
    )


def storage_closed() -> Unavailable:
    """Return the error of a store that is closed or not loaded yet: code `storage-closed`."""
    return Unavailable("the store is not open; nothing was written", code="storage-closed")


def storage_damaged(path: object, finding: str) -> Unavailable:
    """Return the error of a file that is not what it should be: code `storage-damaged`."""
    return Unavailable(
        f"{path} is damaged or is not an Ullage database ({finding}); nothing was changed: "
        f"`ullage recover {path}` shows what is whole, and keeps it with --keep",
        code="storage-damaged",
    )


def storage_changed(path: object, finding: str) -> Unavailable:
    """Return the error of a sound database that has all acknowledged records but was written by another program."""
    return Unavailable(
        f"{path} is not what the server wrote last ({finding}), though SQLite finds nothing wrong with it: another "
        "program has written to it, or stored values were damaged; nothing was changed: "
        f"`ullage recover {path}` shows what is whole; --keep --as-it-is accepts the file as it is",
        code="storage-damaged",
    )


def is_full(cause: BaseException, path: Path | None = None) -> bool:
    """Return whether an error means a full disk; with `path` also an I/O error where the disk is almost full."""
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
    """Return whether an error of SQLite is about the content of the file, not about reading it."""
    code = getattr(cause, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def describe(cause: BaseException) -> str:
    """Return what the driver said, without the statement and its parameters, which hold users' data."""
    origin = getattr(cause, "orig", None)
    return str(origin if origin is not None else cause) or type(cause).__name__
