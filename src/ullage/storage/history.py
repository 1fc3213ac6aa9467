"""The events of a database, which a server may be writing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ullage.model.error import InvalidRequest
from ullage.storage.foreign_changes import MAGIC, open_to_read

_FIELDS = ("number", "at", "kind", "session", "code", "message")


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database.

    Raises:
        InvalidRequest: it cannot be read.

    """
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all events by number, in the form of `/v1/events`, without changes or locks.

    Raises:
        InvalidRequest: it is not the database of a server, or is damaged.

    """
    query = f"SELECT {', '.join(_FIELDS)}, data FROM events ORDER BY number"  # noqa: S608 - the names stand above
    try:
        with closing(open_to_read(path)) as connection:
            for *fields, data in connection.execute(query):
                yield dict(zip(_FIELDS, fields, strict=True)) | {"data": json.loads(data)}
    except (sqlite3.Error, ValueError) as error:
        raise InvalidRequest(f"{path} has no events that can be read: {error}") from None
