"""Whether a file may be opened: read only, so that what is refused stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ullage.model.error import Unavailable
from ullage.storage.failure import storage_damaged
from ullage.storage.schema import REVISION_TABLE, known_revisions

_MAGIC = b"SQLite format 3\0"


def check_file(path: Path) -> None:
    """Refuse a file that this version cannot use; a missing or empty one is fine.

    Reads the whole file once: each page is checked.

    Raises:
        Unavailable: `storage-damaged` for a damaged file or one of another program, `storage-newer`
            for one of a newer version, `storage-failed` if it cannot be read.

    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}", code="storage-failed") from error
    if not start:
        return
    if start != _MAGIC:
        raise storage_damaged(path, "it does not begin as an SQLite file does")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            _check_content(path, connection)
    except sqlite3.DatabaseError as error:
        raise storage_damaged(path, str(error)) from error


def _check_content(path: Path, connection: sqlite3.Connection) -> None:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if names and REVISION_TABLE not in names:
        raise storage_damaged(path, "its tables are those of another program")
    if names:
        row = connection.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchone()  # noqa: S608 - a constant
        if row is None:
            raise storage_damaged(path, "its schema revision is missing")
        if row[0] not in known_revisions():
            raise Unavailable(
                f"{path} was written by a newer version of Ullage (schema revision {row[0]}); nothing was changed: "
                "install that version or a newer one, or choose another file",
                code="storage-newer",
            )
    (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if finding != "ok":
        raise storage_damaged(path, finding)
