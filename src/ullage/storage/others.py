"""Whether the content of a database that differs from its witness can be the work of another program.

A program that opens a database after a kill brings the log into the file when it closes it, and removes the log. The
last commits of the log may have no record in the witness. They are known all the same: the database counts its commits.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ullage.storage.turned import turn_back
from ullage.storage.wal import WriteAheadLog, file_sums
from ullage.storage.witness import Testimony


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a database that stays as it is."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def counted_commits(connection: sqlite3.Connection) -> int:
    """Return the commits that a database counts; 0 in one of a version that did not count."""
    counts = {name for _, name, *_ in connection.execute("PRAGMA table_info(store)")}
    row = connection.execute("SELECT commits FROM store").fetchone() if "commits" in counts else None
    return row[0] if row else 0


def fault(connection: sqlite3.Connection) -> str:
    """Return the first fault that a full check of a database finds, "" if there is none."""
    try:
        (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if finding != "ok":
            return str(finding)
        table, *_ = connection.execute("PRAGMA foreign_key_check").fetchone() or ("",)
    except sqlite3.DatabaseError as error:
        return str(error)
    return f"a row of {table} refers to one that is missing" if table else ""


def is_sound(path: Path, testimony: Testimony, log: WriteAheadLog, bad: list[int]) -> bool:
    """Return whether SQLite reads a whole database with all acknowledged records, though page sums differ."""
    if (log.salts == testimony.position.salts and not log.follows(testimony.position)) or _one_bit_turned(
        path, testimony, bad
    ):
        return False
    with closing(open_to_read(path)) as connection:
        try:
            return counted_commits(connection) >= testimony.commits and not fault(connection)
        except sqlite3.DatabaseError:
            return False


def with_merged_commits(path: Path, testimony: Testimony, log: WriteAheadLog) -> Testimony | None:
    """Return the witness with commits that it lacks, if the log that had them was brought into a sound file."""
    if log.salts == testimony.position.salts:
        return None
    with closing(open_to_read(path)) as connection:
        try:
            merged = counted_commits(connection) - len(log.commits) - testimony.commits
            if merged <= 0 or fault(connection):
                return None
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        except sqlite3.DatabaseError:
            return None
    with path.open("rb") as file:
        sums = file_sums(file, testimony.page_bytes)[:pages]
    return Testimony(testimony.page_bytes, sums, testimony.commits + merged)


def _one_bit_turned(path: Path, testimony: Testimony, bad: list[int]) -> bool:
    """Return whether a page of the file differs from its sum by one bit: no program writes so."""
    size = testimony.page_bytes
    with path.open("rb") as file:
        for number in bad:
            file.seek((number - 1) * size)
            if turn_back(file.read(size), testimony.sums[number - 1]) is not None:
                return True
    return False
