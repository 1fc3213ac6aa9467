"""The state after a kill: half a write, a commit without its record, a file that another program has opened."""

from __future__ import annotations

import errno
import os
import queue
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.storage.histories import drop_last_record, look_into
from tests.storage.stored import (
    SESSION,
    add_one,
    copied_in_use,
    failure,
    fill,
    load_and_close,
    refusal,
    write_without_closing,
)
from ullage.model.error import DiskFull, Unavailable
from ullage.model.event import Event
from ullage.service.store_port import AddEvent, DropSession
from ullage.storage import database, witness, writer
from ullage.storage.database import Database
from ullage.storage.open import open_store
from ullage.storage.recover import recover
from ullage.storage.store import SqliteStore
from ullage.storage.wal import log_path, read_log
from ullage.storage.witness import Witness


def test_a_torn_write_is_cut_back_to_the_last_good_one_with_a_note(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged = write_without_closing(path.with_name("before.db"), 19)
    copy = write_without_closing(path, 20)
    log = Path(f"{copy}-wal")
    os.truncate(log, log.stat().st_size - 100)
    assert refusal(copy).code == "storage-damaged", "the last commit was acknowledged"
    drop_last_record(copy)
    (stored,) = load_and_close(copy).sessions
    assert [task.task for task in stored.tasks] == list(range(1, 20))
    assert "unfinished write" in caplog.text
    assert len(load_and_close(acknowledged).sessions[0].tasks) == 19


def test_a_commit_that_was_not_recorded_any_more_is_taken(path: Path) -> None:
    copy = write_without_closing(path, 20)
    drop_last_record(copy)
    for _ in range(2):
        assert len(load_and_close(copy).sessions[0].tasks) == 20


def killed_before_its_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Open a store, and leave it as by a kill between the first commit and its record."""
    store = open_store(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(witness.Witness, "attest", lambda *_: None)
        store.load()
        copy = copied_in_use(path)
    store.close()
    return copy


def test_a_first_commit_in_a_new_log_is_taken_without_its_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, SESSION)  # closed: its log is gone, and the next one has other salts
    assert len(load_and_close(killed_before_its_record(path, monkeypatch)).sessions) == 1


def test_a_vacuum_that_shortened_the_file_in_its_own_commit_is_taken_without_its_record(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (each for each in database._SETTINGS if "autocheckpoint" not in each)
    monkeypatch.setattr(database, "_SETTINGS", (*settings, "wal_autocheckpoint = 1"))
    fill(path, SESSION, *(add_one(n, b"x" * 50_000) for n in range(1, 41)))
    store, left = open_store(str(path)), queue.SimpleQueue[Path]()
    store.load()
    attest, numbers = Database.attest, count()

    def leave_and_attest(database: Database) -> None:
        left.put(copied_in_use(path, next(numbers)))
        attest(database)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "attest", leave_and_attest)
        store.write(DropSession("s")).result()
        while not is_shortened_without_a_record(copy := left.get(timeout=60)):
            load_and_close(copy)
    store.close()
    assert load_and_close(copy).sessions == ()


def is_shortened_without_a_record(path: Path) -> bool:
    """Return whether pages of the witness are neither in the file nor in its log."""
    testimony = witness.read_witness(path)
    assert testimony is not None
    pages = path.stat().st_size // testimony.page_bytes
    return any(page not in read_log(log_path(path)).pages for page in range(pages + 1, len(testimony.sums) + 1))


def test_an_unfinished_write_is_never_taken_for_a_commit(path: Path) -> None:
    copy = write_without_closing(path, 20)
    log = Path(f"{copy}-wal")
    *_, good, unfinished = read_log(log).commits
    drop_last_record(copy)
    frames = bytearray(log.read_bytes())
    frames[good.position.end + 1000] ^= 1  # a page did not reach the disk, the end of the commit did
    log.write_bytes(frames[: unfinished.position.end])
    store = open_store(str(copy))
    store.load()
    killed = copied_in_use(copy)
    store.close()
    assert len(load_and_close(killed).sessions[0].tasks) == 19


def test_a_record_is_written_only_for_a_log_that_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION).result()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        assert failure(store.write(add_one(1))).code == "storage-failed"
    store.close()
    recorded = witness.read_witness(path)
    assert recorded is not None
    assert recorded.commits == 2, "the start and the session"


def test_a_write_of_nothing_is_no_commit(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION).result()
    before = read_log(log_path(path)).commits
    store.write().result()
    assert read_log(log_path(path)).commits == before
    store.close()


def test_records_are_on_the_disk_before_the_log_is_restarted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (each for each in database._SETTINGS if "autocheckpoint" not in each)
    monkeypatch.setattr(database, "_SETTINGS", (*settings, "wal_autocheckpoint = 8"))
    monkeypatch.setattr(witness, "LOG_PAGES", 8)
    monkeypatch.setattr(witness, "_MOST_UNSYNCED_S", 60.0)
    monkeypatch.setattr(writer, "_QUIET_S", 60.0)
    attest, restarted, unsynced = Witness.attest, list[bool](), 0

    def record_and_attest(self: Witness, commits: int) -> None:
        nonlocal unsynced
        unsynced += not self.is_synced
        if read_log(log_path(path)).salts != self._testimony.position.salts:
            restarted.append(self.is_synced)
        attest(self, commits)

    monkeypatch.setattr(Witness, "attest", record_and_attest)
    fill(path, SESSION)
    store = open_store(str(path))
    store.load()
    for number in range(1, 21):
        store.write(add_one(number)).result()
    store.close()
    assert len(restarted) > 2
    assert all(restarted)
    assert unsynced > 2, "a commit does not wait for the record of the one before"


def test_records_are_synced_after_a_while_without_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, synced = open_store(str(path)), queue.SimpleQueue[int]()
    store.load()
    sync = Witness.sync

    def sync_and_report(self: Witness) -> None:
        sync(self)
        synced.put(self._testimony.commits)

    with monkeypatch.context() as patch:
        patch.setattr(Witness, "sync", sync_and_report)
        store.write(SESSION).result()
        while synced.get(timeout=60) < 2:
            pass
    store.close()


def test_a_connection_that_reads_writes_nothing(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION, add_one(1)).result()
    assert isinstance(store, SqliteStore)
    assert store._database is not None
    before = read_log(Path(f"{path}-wal")).commits
    with store._database.reading() as one, store._database.reading() as other:
        assert [one.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one() for one in (one, other)] == [1, 1]
        assert read_log(Path(f"{path}-wal")).commits == before
    store.close()


def test_a_log_that_ends_with_a_commit_is_not_called_torn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = write_without_closing(path, 20)
    assert read_log(Path(f"{copy}-wal")).torn_bytes == 0
    assert len(load_and_close(copy).sessions[0].tasks) == 20
    assert caplog.text == ""


CHILD = """
import sys
from ullage.model.quota import Quota
from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddTasks, PutSession
from ullage.storage import witness
from ullage.storage.open import open_store

store = open_store(sys.argv[1])
store.load()
store.write(PutSession(SessionInfo("s", SessionSpec("function"), 1.0, 1))).result()
for number in range(1, 1001):
    first = 4 * number - 3
    halves = [AddTasks("s", task, f"k{task}", task, (b"a", b"b"), 1.0) for task in (first, first + 2)]
    future = store.write(*halves)
    future.add_done_callback(lambda _, number=number: print(number, flush=True))
    if number % 7 == 0:
        future.result()
sys.stdin.read()  # until it is killed
"""


@pytest.mark.parametrize("kill_at", [1, 50, 333, 800, 1000])
def test_a_process_killed_while_writing_leaves_whole_writes_and_all_acknowledged_ones(path: Path, kill_at: int) -> None:
    command = [sys.executable, "-c", CHILD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        acknowledged = 0
        for line in child.stdout or ():
            acknowledged = int(line)
            if acknowledged == kill_at:
                child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    (stored,) = load_and_close(path).sessions
    tasks = [task.task for task in stored.tasks]
    assert tasks == list(range(1, len(tasks) + 1))
    assert len(tasks) % 4 == 0
    assert acknowledged <= len(tasks) // 4 <= 1000


def test_readers_that_come_while_others_write_leave_a_file_that_is_opened_again(path: Path) -> None:
    """A connection that writes a page when it opens leaves a commit that no record of the witness has."""
    store = SqliteStore(path)
    store.load()
    store.write(SESSION).result()
    database = store._database
    assert database is not None
    with ExitStack() as readers:
        for number in range(1, 5):
            connection = readers.enter_context(database.reading())
            assert connection.execute(text("SELECT count(*) FROM sessions")).scalar_one() == 1
            store.write(AddEvent(Event(number, 1.0, "tick"))).result()
    store.close()
    load_and_close(path)


# --- other programs ---


def test_a_program_that_looks_into_a_store_after_a_kill_changes_nothing(path: Path) -> None:
    copy = write_without_closing(path, 20)
    look_into(copy)
    assert len(load_and_close(copy).sessions[0].tasks) == 20


def test_a_commit_without_a_record_is_accepted_after_another_program_merged_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = write_without_closing(path, 20)
    drop_last_record(copy)
    look_into(copy)
    assert not log_path(copy).exists()
    for _ in range(2):
        assert len(load_and_close(copy).sessions[0].tasks) == 20
    assert caplog.text.count("another program merged commits") == 1


def write_as_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM tasks WHERE task > 10")
        connection.commit()


def test_changes_of_another_program_are_refused_and_accepted_by_recovery(path: Path) -> None:
    fill(path, SESSION, *map(add_one, range(1, 21)))
    write_as_another_program(path)
    error = refusal(path)
    assert error.code == "storage-damaged"
    assert "another program has written to it" in error.message
    assert "--as-it-is" in error.message
    found = recover(path, keep=False)
    assert found.intact_at == found.acknowledged
    recover(path, keep=True, as_it_is=True)
    assert len(load_and_close(path).sessions[0].tasks) == 10


def test_a_damaged_file_is_not_accepted_as_it_is(path: Path) -> None:
    fill(path, SESSION, *map(add_one, range(1, 400)))
    data = bytearray(path.read_bytes())
    data[8 * 4096 : 12 * 4096] = bytes(4 * 4096)
    path.write_bytes(data)
    assert refusal(path).message.startswith(f"{path} is damaged")
    before = path.read_bytes()
    with pytest.raises(Unavailable, match="a full check fails"):
        recover(path, keep=True, as_it_is=True)
    assert path.read_bytes() == before


def test_changes_of_another_program_to_an_open_store_are_kept_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, SESSION, *map(add_one, range(1, 21)))
    store = open_store(str(path))
    store.load()
    store.write(add_one(21)).result()
    write_as_another_program(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.write(add_one(22)).result()
    assert "another program wrote to it" in caplog.text
    copy = copied_in_use(path)
    store.close()
    for each in (copy, path):
        assert len(load_and_close(each).sessions[0].tasks) == 11


def test_a_start_that_failed_is_tried_again_from_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, SESSION)
    store = open_store(str(path))

    def fail(self: Witness, commits: int) -> None:
        if commits > self._testimony.commits:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Witness, "attest", fail)
        for _ in range(6):
            with pytest.raises(DiskFull):
                store.load()
    store.load()
    store.write(add_one(1)).result()
    copy = copied_in_use(path)
    store.close()
    recorded, log = witness.read_witness(copy), read_log(log_path(copy))
    assert recorded is not None
    assert recorded.position == log.commits[-1].position, "no commit is without its record"
    assert len(load_and_close(copy).sessions[0].tasks) == 1
