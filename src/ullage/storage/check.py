"""The check of a database file before it is opened. The check only reads."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import zip_longest
from pathlib import Path

from ullage.model.error import Unavailable
from ullage.storage.failure import (
    disk_full,
    is_damage,
    is_full,
    storage_changed,
    storage_damaged,
    storage_inaccessible,
    storage_unreadable,
)
from ullage.storage.foreign_changes import MAGIC, counted_commits, is_sound, open_to_read, with_merged_commits
from ullage.storage.schema import REVISION_TABLE, known_revisions
from ullage.storage.wal import START, WriteAheadLog, file_sums, log_path, read_log
from ullage.storage.witness import Testimony, read_witness, witness_path

_NAMED_PAGES = 8
_LOG = logging.getLogger(__name__)


def check_file(path: Path) -> Testimony | None:
    """Check that this version can use a file, and that it has the state that was written last.

    Return its witness with the commits up to the last one that SQLite accepts; None for a missing or empty file, and
    for one that never had a witness. The whole file is read once.

    Raises:
        Unavailable: `storage-damaged` for a damaged file or one of another program, `storage-newer`
            for one of a newer version, `disk-full`, `storage-failed` if it cannot be read.

    """
    try:
        return _check(path)
    except ValueError as error:
        raise storage_damaged(path, f"its witness {witness_path(path).name} is damaged: {error}") from error
    except OSError as error:
        raise disk_full(path, error) if is_full(error) else storage_inaccessible(path, error) from error
    except sqlite3.Error as error:
        if is_damage(error):
            raise storage_damaged(path, str(error)) from error
        raise disk_full(path, error) if is_full(error, path) else storage_unreadable(str(path), error) from error


def _check(path: Path) -> Testimony | None:
    start = _start(path)
    if start not in (b"", MAGIC):
        raise storage_damaged(path, "it does not begin like an SQLite file")
    if start:
        refuse_newer(path)
    testimony = read_witness(path)
    if not start:
        if testimony is not None and testimony.commits:
            finding = f"it is missing or empty, and its witness counts {testimony.commits} commits"
            raise storage_damaged(path, finding)
        return None
    log = read_log(log_path(path), *([testimony.position] if testimony else []))
    if testimony is not None:
        testimony = _compare(path, testimony, log)
    with closing(open_to_read(path)) as connection:
        commits = _check_content(path, connection, testimony, log)
    if log.torn_bytes:
        _LOG.warning("%s: %d bytes of an unfinished write were cut off after the last commit", path, log.torn_bytes)
    if testimony is not None:
        for appended in log.commits:
            testimony.apply(commits, appended)
        testimony.commits = commits
        if testimony.position.salts != log.salts:  # the next log may have any salts
            testimony.position = START
    return testimony


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except FileNotFoundError:
        return b""


def _compare(path: Path, testimony: Testimony, log: WriteAheadLog) -> Testimony:
    """Compare the pages that SQLite would read with the witness. Return the witness of the pages that SQLite reads."""
    bad = bad_pages(path, testimony, log)
    findings = "; ".join(_findings(testimony, log, bad))
    if not findings:
        return testimony
    merged = with_merged_commits(path, testimony, log)
    if merged is None:
        changed = testimony.bad_at is None and is_sound(path, testimony, log, bad)
        raise (storage_changed if changed else storage_damaged)(path, findings)
    numbers = path, testimony.commits + 1, merged.commits, _named(bad)
    _LOG.warning("%s: another program merged commits %d to %d, which have no record, into the file: pages %s", *numbers)
    return merged


def _findings(testimony: Testimony, log: WriteAheadLog, bad: list[int]) -> Iterator[str]:
    if not log.follows(testimony.position):
        same = log.salts == testimony.position.salts
        changed = f"changed or truncated{missing_commits(testimony, log)}" if same else "not the current one"
        yield f"its write-ahead log is {changed}"
    if bad:
        count = f"{len(bad)} of {len(testimony.sums)} pages"
        yield f"{count} differ from the last written state (numbers {_named(bad)})"
        if testimony.bad_at is not None:
            yield f"its witness has a damaged record at byte {testimony.bad_at}"


def missing_commits(testimony: Testimony, log: WriteAheadLog) -> str:
    """Return text on the acknowledged commits that the log lacks; "" without any."""
    whole = max((each.position.end for each in log.commits), default=0)
    lost = [number for number, at in testimony.seen if at.salts == log.salts and at.end > whole]
    return f": commits {min(lost)} to {max(lost)} are incomplete" if lost else ""


def bad_pages(path: Path, testimony: Testimony, log: WriteAheadLog) -> list[int]:
    """Return the numbers of the pages that SQLite would read from the file and whose sums differ."""
    with path.open("rb") as file:
        found = file_sums(file, testimony.page_bytes)
    # A commit without a record may have truncated the file.
    pages = log.commits[-1].pages if log.commits else len(testimony.sums)
    pairs = zip_longest(testimony.sums[:pages], found[:pages], fillvalue=0)
    return [page for page, (total, sum_) in enumerate(pairs, 1) if total and sum_ != total and page not in log.pages]


def _named(pages: list[int]) -> str:
    return ", ".join(map(str, pages[:_NAMED_PAGES])) + (", ..." if len(pages) > _NAMED_PAGES else "")


def refuse_newer(path: Path) -> None:
    """Refuse a file of a newer version, whose witness may have another form. Ignore errors of reading here.

    Raises:
        Unavailable: with the code `storage-newer`.

    """
    with closing(open_to_read(path)) as connection, suppress(sqlite3.Error):
        row = connection.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchone()  # noqa: S608 - a constant
        (revision,) = row or (None,)
        if revision is not None and revision not in known_revisions():
            raise Unavailable(
                f"{path} was written by a newer version of Ullage (schema revision {revision}); nothing was changed: "
                "install that version or a newer one, or choose another file",
                code="storage-newer",
            )


def _check_content(path: Path, connection: sqlite3.Connection, testimony: Testimony | None, log: WriteAheadLog) -> int:
    """Refuse unusable content. Return the number of commits that it counts."""
    commits, names = 0, {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if names and REVISION_TABLE not in names:
        raise storage_damaged(path, "it has the tables of another program")
    if names:
        if connection.execute(f"SELECT 1 FROM {REVISION_TABLE}").fetchone() is None:  # noqa: S608 - a constant
            raise storage_damaged(path, "its schema revision is missing")
        commits = counted_commits(connection)
        _check_commits(path, commits, testimony, log)
    if testimony is None:
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise storage_damaged(path, finding)
    return commits


def _check_commits(path: Path, commits: int, testimony: Testimony | None, log: WriteAheadLog) -> None:
    if testimony is None and commits:
        raise storage_damaged(path, f"its witness {witness_path(path).name} is missing")
    if testimony is not None and commits < testimony.commits:
        raise storage_damaged(path, f"it ends at commit {commits}, and commit {testimony.commits} was acknowledged")
    if testimony is not None and commits > (proven := testimony.commits + len(log.commits)):
        missing = f"commits {testimony.commits + 1} to {testimony.commits + commits - proven} are missing"
        raise storage_damaged(path, f"its write-ahead log {log_path(path).name} is of another state: {missing}")
