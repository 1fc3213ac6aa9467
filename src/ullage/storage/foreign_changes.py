"""Changes of a database by other programs, as opposed to damage.

A program that opens a database after a kill checkpoints the log when it closes the database, and removes the log. The
last commits of the log may have no record in the witness. The number of commits in the database shows them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ullage.storage.bit_flip import repair_bit_flip
from ullage.storage.wal import WriteAheadLog, file_sums
from ullage.storage.witness import Testimony

MAGIC = b"SQLite format 3\0"
"""The first bytes of a database."""


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a database read-only."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def counted_commits(connection: sqlite3.Connection) -> int:
    """Return the number of commits in a database; 0 if its version does not count."""
    counts = {name for _, name, *_ in connection.execute("PRAGMA table_info(store)")}
    row = connection.execute("SELECT commits FROM store").fetchone() if "commits" in counts else None
    return row[0] if row else 0


def integrity_error(connection: sqlite3.Connection) -> str:
    """Return the first error of a full check of a database; "" without one."""
    try:
        (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if finding != "ok":
            return str(finding)
        table, *_ = connection.execute("PRAGMA foreign_key_check").fetchone() or ("",)
    except sqlite3.DatabaseError as error:
        return str(error)
    return f"a row of {table} refers to one that is missing" if table else ""


def is_sound(path: Path, testimony: Testimony, log: WriteAheadLog, bad: list[int]) -> bool:
    """Return whether SQLite reads an intact database with all acknowledged records, though page sums differ."""
    if (log.salts == testimony.position.salts and not log.follows(testimony.position)) or _has_bit_flip(
        path, testimony, bad
    ):
        return False
    with closing(open_to_read(path)) as connection:
        try:
            return counted_commits(connection) >= testimony.commits and not integrity_error(connection)
        except sqlite3.DatabaseError:
            return False


def with_merged_commits(path: Path, testimony: Testimony, log: WriteAheadLog) -> Testimony | None:
    """Return the witness with the commits that it lacks, if their log was checkpointed into an intact file."""
    if log.salts == testimony.position.salts:
        return None
    with closing(open_to_read(path)) as connection:
        try:
            merged = counted_commits(connection) - len(log.commits) - testimony.commits
            if merged <= 0 or integrity_error(connection):
                return None
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        except sqlite3.DatabaseError:
            return None
    with path.open("rb") as file:
        sums = file_sums(file, testimony.page_bytes)[:pages]
    return Testimony(testimony.page_bytes, sums, testimony.commits + merged)


def _has_bit_flip(path: Path, testimony: Testimony, bad: list[int]) -> bool:
    """Return whether one bit explains the sum of a page, which no program causes."""
    size = testimony.page_bytes
    with path.open("rb") as file:
        for number in bad:
            file.seek((number - 1) * size)
            if repair_bit_flip(file.read(size), testimony.sums[number - 1]) is not None:
                return True
    return False
