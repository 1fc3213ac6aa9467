"""Rows of dropped sessions are deleted in steps, between other writes and across kills."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.storage.stored import SESSION, copied_in_use, load_and_close
from tests.system.live_server import wait_until
from ullage.model.event import Event
from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddClaims, AddEvent, AddResults, AddTasks, DropSession, PutAttempts, PutSession
from ullage.storage import batch, purge, writer
from ullage.storage.open import open_store
from ullage.storage.recover import recover
from ullage.storage.store import SqliteStore
from ullage.storage.writer import Writer

COUNT, STEP = 100, 8
TABLES = ("submissions", "tasks", "claims", "attempts", "results", "payloads", "sessions")


@pytest.fixture(autouse=True)
def steps_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (batch, writer):
        monkeypatch.setattr(module, "STEP_ROWS", STEP)


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store with a session that needs many steps."""
    store = open_store(str(path))
    store.load()
    tasks = tuple(range(1, COUNT + 1))
    endings = tuple(TaskResult("s", n, n, TaskState.SUCCEED, 0, b"o" * 5000, "", "e", 1.0, 2.0) for n in tasks[:60])
    records = [
        SESSION,
        *(AddTasks("s", n, f"k{n}", n, (b"x" * (5000 if n % 2 else 5),), 1.0, b"shared" * n) for n in tasks),
        AddClaims("s", tasks, tasks, "e", 1.0),
        *(PutAttempts("s", n, 1, 1) for n in tasks[::3]),
        AddResults(endings),
        AddEvent(Event(1, 1.0, "session.created", "s")),
    ]
    store.write(*records).result()
    yield store
    store.close()


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}


def nothing_is_left(path: Path) -> bool:
    return not any(rows(path).values())


def killed_in_the_middle(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the files as they are after a kill between the transaction of the drop and the next step."""
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_tidy", lambda _: None)
        store.write(DropSession("s")).result()
        return copied_in_use(path)


def test_all_rows_of_a_dropped_session_go(store: SqliteStore, path: Path) -> None:
    store.write(DropSession("s")).result()
    wait_until(lambda: nothing_is_left(path), "all rows are deleted")


def test_rows_of_several_sessions_that_are_dropped_together_go(path: Path) -> None:
    names = [f"s{number}" for number in range(1, 31)]
    store = open_store(str(path))
    store.load()
    for number, name in enumerate(names, 1):
        session = PutSession(SessionInfo(name, SessionSpec("function"), 1.0, number))
        store.write(session, AddTasks(name, 1, "k", 1, (b"x",) * 3, 1.0)).result()
    store.write(*map(DropSession, names[1:])).result()
    assert [stored.session.id for stored in store.load().sessions] == ["s1"]
    wait_until(lambda: rows(path)["sessions"] == 1, "all others are deleted")
    assert rows(path)["tasks"] == 3
    store.close()


def test_other_writes_are_stored_between_two_steps(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written, were_done = [], []

    def step(*arguments: object) -> int:
        were_done.append(all(future.done() for future in written))
        written.append(store.write(AddEvent(Event(10 + len(written), 1.0, "tick"))))
        return purge.delete_rows(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(writer, "delete_rows", step)
    store.write(DropSession("s")).result()
    wait_until(lambda: len(were_done) > COUNT // STEP, "many steps")
    assert all(were_done), "what one step finds queued is stored before the next"


def test_no_step_deletes_many_rows_or_bytes(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "_STEP_BYTES", 12_000)
    counts = [rows(path)]
    sync = Writer._tidy

    def tidy(self: Writer) -> None:
        counts.append(rows(path))
        sync(self)

    monkeypatch.setattr(Writer, "_tidy", tidy)
    store.write(DropSession("s")).result()
    wait_until(lambda: nothing_is_left(path), "all rows are deleted")
    for before, after in pairwise(counts):
        assert before["payloads"] - after["payloads"] <= 3, "three have the bytes of a step"
        assert all(before[name] - after[name] <= STEP for name in TABLES)


def test_after_a_kill_in_the_middle_the_session_is_gone_and_the_next_process_deletes_the_rest(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = killed_in_the_middle(store, path, monkeypatch)
    assert rows(copy)["tasks"] == COUNT - STEP
    again = open_store(str(copy))
    snapshot = again.load()
    assert (snapshot.sessions, snapshot.last_event, snapshot.last_session) == ((), 1, 1)
    again.write(PutSession(SessionInfo("s", SessionSpec("function"), 2.0, 2))).result()
    (stored,) = again.load().sessions
    assert (stored.session.number, stored.tasks, stored.submissions) == (2, (), ())
    wait_until(lambda: rows(copy) == dict.fromkeys(TABLES, 0) | {"sessions": 1}, "the rest is deleted")
    again.close()


def test_a_recovery_does_not_bring_a_dropped_session_back(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = killed_in_the_middle(store, path, monkeypatch)
    assert recover(copy, keep=False).sessions == 0
    assert load_and_close(copy).sessions == ()
