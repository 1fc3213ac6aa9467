"""The database file: its errors, its lock, its mode, its size, and a full disk."""

import errno
import os
import queue
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, text

from tests.storage.stored import SESSION, add_one, failure, fill, load_and_close, refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import DiskFull, InvalidRequest, Unavailable
from ullage.model.event import Event
from ullage.model.gpu import Gpu
from ullage.model.nomination import Nomination
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.task import TaskResult, TaskState
from ullage.model.zone_placement import ZonePlacement
from ullage.service.store_port import (
    AddEvent,
    AddResults,
    AddTasks,
    DropSession,
    Page,
    PutAllocation,
    PutNomination,
    PutQuota,
)
from ullage.storage import database, witness
from ullage.storage.open import open_store
from ullage.storage.pages import read_evictions
from ullage.storage.schema import apply_migrations, known_revisions, migrate
from ullage.storage.store import SqliteStore
from ullage.storage.tables import METADATA
from ullage.storage.witness import witness_path


@contextmanager
def rewritten(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as an older version left it, which counted no commits."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE store SET commits = 0")
        yield connection
        connection.commit()
    witness_path(path).unlink()


def bring_down(connection: sqlite3.Connection, revision: str) -> None:
    """Take back what came after `revision`, down to 0003."""
    for table in ("history", "stays", "capacity"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DROP INDEX evictions")
    connection.execute("DROP TABLE waits")
    connection.execute("DROP TABLE access_tokens")
    connection.execute("DROP TABLE notices")
    connection.execute("DROP TABLE payloads")
    connection.execute("DROP TABLE gangs")
    connection.execute("ALTER TABLE store DROP COLUMN commits")
    for table in ("tasks", "results", "submissions"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN payload")
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def assert_refused_unchanged(path: Path, code: str) -> None:
    before = path.read_bytes()
    error = refusal(path)
    assert error.code == code
    assert str(path) in error.message
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"these are not the pages you look for" * 100)
    assert_refused_unchanged(path, "storage-damaged")


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    assert_refused_unchanged(path, "storage-damaged")


@pytest.mark.parametrize("page", [2, 4, 7])
def test_a_damaged_page_is_found_and_the_file_left_alone(path: Path, page: int) -> None:
    fill(path, SESSION, *(add_one(n, b"x" * 500) for n in range(1, 200)))
    content = bytearray(path.read_bytes())
    content[4096 * page : 4096 * (page + 1)] = b"\xa5" * 4096
    path.write_bytes(content)
    assert_refused_unchanged(path, "storage-damaged")


def test_a_file_cut_short_is_refused_and_left_alone(path: Path) -> None:
    fill(path, SESSION, *(add_one(n, b"x" * 500) for n in range(1, 200)))
    os.truncate(path, path.stat().st_size // 2)
    assert_refused_unchanged(path, "storage-damaged")


def test_changed_content_is_refused(path: Path) -> None:
    fill(path, SESSION)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE sessions SET value = '{}'")
        connection.commit()
    assert refusal(path).code == "storage-damaged"


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    fill(path, SESSION)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    assert_refused_unchanged(path, "storage-newer")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    assert load_and_close(path).epoch == 1


def test_a_start_whose_commit_the_driver_refuses_is_a_failure_of_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_and_close(path)
    monkeypatch.setattr(database, "_COUNT", "UPDATE missing SET commits=?")
    error = refusal(path)
    assert (error.code, isinstance(error.__cause__, sqlite3.Error)) == ("storage-failed", True)
    monkeypatch.undo()
    load_and_close(path)


def test_migrations_build_exactly_the_tables_that_are_described_and_that_a_new_database_has() -> None:
    schemas, rows = [], []
    for build in (METADATA.create_all, apply_migrations, migrate):
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            build(connection)
            query = text("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%' ORDER BY name")
            schemas.append([(name, re.sub(r"[\s,]+", " ", sql or "")) for name, sql in connection.execute(query)])
            tables = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
            rows.append({name: connection.execute(text(f"SELECT * FROM {name}")).all() for name in tables})
        engine.dispose()
    described, migrated, new = schemas
    assert described == migrated == new, "`python -m ullage.storage.schema` writes newest.sql"
    assert rows[1] == rows[2]
    assert (rows[2]["alembic_version"], rows[2]["store"]) == ([(known_revisions()[-1],)], [(1, 0, 0, 0)])


def test_the_names_of_migrations_say_their_revisions_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(witness.__file__).with_name("migrations")))
    found = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == known_revisions()


@pytest.mark.parametrize("sessions", [0, 1])
def test_a_start_without_a_file_of_an_older_version_does_not_load_the_tool_that_migrates(
    path: Path, sessions: int
) -> None:
    if sessions:
        fill(path, SESSION)
    code = (
        "import sys; from pathlib import Path; from ullage.storage.store import SqliteStore\n"
        f"store = SqliteStore(Path(sys.argv[1])); assert len(store.load().sessions) == {sessions}; store.close()\n"
        "print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_newest_eviction_of_a_session_is_found_by_its_own_index() -> None:
    """A session may have many events, and none of this kind."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        migrate(connection)
        asked: list[str] = []
        connection.connection.driver_connection.set_trace_callback(asked.append)
        read_evictions(connection, Page(0, 1), "s")
        connection.connection.driver_connection.set_trace_callback(None)
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {asked[-1]}")).all()
    engine.dispose()
    assert [row.detail for row in plan] == ["SEARCH events USING INDEX evictions (session=? AND number>?)"]


def test_a_file_of_the_first_version_is_migrated_with_its_content(path: Path) -> None:
    fill(path, SESSION, add_one(1), AddEvent(Event(1, 3.0, "executor.started", "s")))
    with rewritten(path) as connection:
        bring_down(connection, "0001")
        for table in ("allocations", "quotas", "nominations"):
            connection.execute(f"DROP TABLE {table}")
    quota = PutQuota("team", Quota(max_workers=3))
    fill(path, quota)
    snapshot = load_and_close(path)
    assert [(s.session.id, [task.task for task in s.tasks]) for s in snapshot.sessions] == [("s", [1])]
    assert snapshot.quotas == (quota,)
    (past,) = snapshot.history
    assert (past.session, past.application, past.queue, past.state) == ("s", "function", "default", "running")
    assert (past.created_at, past.asked_at, past.started_at, past.ended_at) == (1.0, 1.0, 3.0, None)


def test_allocations_from_before_zones_were_known_lie_nowhere_in_particular(path: Path) -> None:
    asked = ResourceRequirement.of(gpu=1)
    held = Allocation("a", "n1", asked, ("g",), claim=Claim("team"), placement=ZonePlacement((0,), (1, 2)))
    fill(path, PutAllocation(held))
    with rewritten(path) as connection:
        query = "UPDATE allocations SET value = json_remove(value, '$.placement', '$.requirement.alignment')"
        assert connection.execute(query).rowcount == 1
    assert load_and_close(path).allocations == (replace(held, placement=None),)


@pytest.mark.parametrize(("stored", "read"), [("1", (1,)), ("0", (0,)), ("null", ()), ("-1", ()), ("64", ())])
def test_the_zone_of_a_card_becomes_its_zones(path: Path, stored: str, read: tuple[int, ...]) -> None:
    asked, card = ResourceRequirement.of(memory=2**62, gpu=1), Gpu("g", 0, model="é")
    held = Allocation("a", "n1", asked, ("g",), claim=Claim("team"), cards=(card,))
    fill(path, PutAllocation(held))
    with rewritten(path) as connection:
        (value,) = connection.execute("SELECT value FROM allocations").fetchone()
        old = value.replace('"zones":[]', f'"numa_zone":{stored}')
        assert old != value
        connection.execute("UPDATE allocations SET value = ?", (old,))
        bring_down(connection, "0004")
    (found,) = load_and_close(path).allocations
    assert (found, found.cards) == (held, (replace(card, zones=read),))


@pytest.mark.parametrize(("stored", "read"), [(10**30, 2**31 - 1), (-(2**40), -(2**31)), (-7, -7), (2**31 - 1,) * 2])
def test_priorities_that_were_taken_before_they_had_a_range_are_brought_into_it(
    path: Path, stored: int, read: int
) -> None:
    request = Request("r", ResourceRequirement.of(gpu=1))
    held = Allocation("a", "n1", request.requirement, ("g",), claim=Claim("team", labels={"x": "y"}))
    fill(path, PutAllocation(held), PutNomination(Nomination(request, "n1", 5.0, ("g",))))
    with rewritten(path) as connection:
        for table in ("allocations", "nominations"):
            (value,) = connection.execute(f"SELECT value FROM {table}").fetchone()
            old = value.replace('"priority":0', f'"priority":{stored}')
            assert old != value
            connection.execute(f"UPDATE {table} SET value = ?", (old,))
        bring_down(connection, "0003")
    snapshot = load_and_close(path)
    assert snapshot.allocations == (replace(held, claim=replace(held.claim, priority=read)),)
    (nomination,) = snapshot.nominations
    assert nomination.request == replace(request, claim=Claim(priority=read))


def test_a_second_store_on_the_same_file_is_refused_with_its_holder(path: Path, tmp_path: Path) -> None:
    store = open_store(str(path))
    (tmp_path / "link.db").symlink_to(path)
    for name in (path, tmp_path / "link.db", f"sqlite:///{path}"):
        with pytest.raises(Unavailable, match=f"process {os.getpid()}") as caught:
            open_store(str(name))
        assert caught.value.code == "storage-in-use"
    store.close()
    assert load_and_close(path).epoch == 1


def test_a_directory_that_cannot_be_made_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(Unavailable) as caught:
        open_store(str(path / "state.db"))
    assert caught.value.code == "storage-failed"


@pytest.mark.parametrize("url", ["", "redis://host/1", "postgresql://host/db", "sqlite:///", "memory://x", "a/"])
def test_a_store_of_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_store(url)
    assert caught.value.field == "storage"


def test_everything_made_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(str(tmp_path / "made" / "here" / "state.db"))
        store.load()
        store.write(SESSION).result()
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "made").rglob("*")}
        store.close()
    finally:
        os.umask(before)
    files = dict.fromkeys(["state.db", "state.db-wal", "state.db-shm", "state.db-witness", "state.db.lock"], 0o600)
    assert modes == files | {"here": 0o700}


class Disk:
    """A disk on which the database may have so many pages."""

    def __init__(self, store: SqliteStore) -> None:
        assert store._database is not None
        with store._database.reading() as connection:
            self.pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + 4
        with store._database.turn:  # a list of listeners must not change while a transaction begins
            event.listen(store._database._writer, "begin", self._limit)

    def _limit(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {self.pages}")


def test_writes_wait_on_a_full_disk_and_are_stored_when_there_is_room(path: Path) -> None:
    store, room = SqliteStore(path), queue.SimpleQueue[Unavailable | None]()
    store.watch_room(room.put)
    store.load()
    store.write(SESSION, add_one(1)).result()
    disk = Disk(store)
    futures = [store.write(add_one(2), add_one(3, b"x" * 100_000)), store.write(DropSession("s"), SESSION, add_one(9))]
    error = room.get(timeout=60)
    assert isinstance(error, DiskFull)
    assert error.message.startswith(f"the disk of the server is full: {path} cannot be written")
    assert not any(future.done() for future in futures)
    assert [task.task for task in store.tasks("s", Page())] == [1], "reading goes on"
    disk.pages = 1000
    for future in futures:
        future.result(60)
    assert room.get(timeout=60) is None
    store.close()
    (stored,) = load_and_close(path).sessions
    assert [task.task for task in stored.tasks] == [9]


def refuse_to_begin(patch: pytest.MonkeyPatch, code: int) -> None:
    """Let the driver refuse all that a database gives it from now on."""

    def refuse(_connection: Connection) -> NoReturn:
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode = code
        raise error

    patch.setattr(database, "driver_of", refuse)


def test_a_transaction_that_a_full_disk_does_not_let_begin_is_begun_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, room = SqliteStore(path), queue.SimpleQueue[Unavailable | None]()
    store.watch_room(room.put)
    store.load()
    with monkeypatch.context() as patch:
        refuse_to_begin(patch, sqlite3.SQLITE_FULL)
        waiting = store.write(SESSION, add_one(1))
        assert isinstance(room.get(timeout=60), DiskFull)
    waiting.result(60)
    store.write(add_one(2)).result(60)
    store.close()
    assert len(load_and_close(path).sessions[0].tasks) == 2


def test_a_view_that_cannot_begin_is_a_failed_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    store.load()
    with monkeypatch.context() as patch:
        refuse_to_begin(patch, sqlite3.SQLITE_FULL)
        with pytest.raises(Unavailable, match="the store cannot be read") as error:
            store.results("s", Page())
    assert error.value.code == "storage-failed"
    store.close()


def test_a_store_that_is_closed_on_a_full_disk_keeps_what_was_acknowledged(path: Path) -> None:
    store, room = SqliteStore(path), queue.SimpleQueue[Unavailable | None]()
    store.watch_room(room.put)
    store.load()
    store.write(SESSION, add_one(1)).result()
    Disk(store)
    waiting = store.write(add_one(2, b"x" * 100_000))
    room.get(timeout=60)
    store.close()
    assert failure(waiting).code == "storage-failed"
    (stored,) = load_and_close(path).sessions
    assert [task.task for task in stored.tasks] == [1]


def test_a_witness_without_room_is_written_when_there_is_some(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, room = SqliteStore(path), queue.SimpleQueue[Unavailable | None]()
    store.watch_room(room.put)
    store.load()
    store.write(SESSION).result()
    write, full = witness._write_all, threading.Event()
    full.set()

    def fail(descriptor: int, data: bytes, at: int) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor, data, at)

    monkeypatch.setattr(witness, "_write_all", fail)
    waiting = store.write(add_one(1))
    assert isinstance(room.get(timeout=60), DiskFull)
    assert not waiting.done()
    full.clear()
    waiting.result(60)
    store.close()
    assert [task.task for task in load_and_close(path).sessions[0].tasks] == [1]


def test_a_sound_database_on_a_full_disk_is_not_called_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, SESSION)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    error = refusal(path)
    assert isinstance(error, DiskFull)
    assert "is full" in error.message
    assert "damaged" not in error.message
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert len(load_and_close(path).sessions) == 1


def test_users_data_stays_out_of_error_messages(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    error = failure(store.write(SESSION, add_one(1, b"secret"), add_one(1, b"secret")))
    store.close()
    assert "secret" not in error.message
    assert "secret" not in str(error.__cause__)


def test_room_of_a_dropped_session_is_given_back(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION, *(add_one(n, b"x" * 50_000) for n in range(1, 401))).result()
    store.write(DropSession("s")).result()
    for number in range(1, 20):
        store.write(AddEvent(Event(number, 1.0, "tick"))).result()
    store.close()
    assert path.stat().st_size < 1_000_000


def test_room_of_a_dropped_session_is_given_back_while_the_store_is_open(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION, *(add_one(n, b"x" * 50_000) for n in range(1, 401))).result()
    store.write(DropSession("s")).result()
    # Between two writes some room is given back; so few writes bring no log into the file by themselves.
    sizes = []
    for number in range(1, 100):
        store.write(AddEvent(Event(number, 1.0, "tick"))).result()
        sizes.append(path.stat().st_size)
    store.close()
    assert min(sizes) < 1_000_000


def test_a_repeated_reading_page_is_not_changed_by_writes_in_between(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION, add_one(1)).result()
    first = store.tasks("s", Page(limit=1))
    store.write(add_one(2)).result()
    assert store.tasks("s", Page(limit=1)) == first
    store.close()


LARGE = b"0123456789abcdef" * (512 * 1024)  # 8 MiB


def ended(task: int, output: bytes | None) -> AddResults:
    return AddResults((TaskResult("s", task, task, TaskState.SUCCEED, 0, output, "", "e", 1.0, 2.0),))


def test_payloads_of_a_large_old_database_leave_the_trees_of_keys(path: Path) -> None:
    outputs = {task: LARGE if task % 8 == 3 else b"small" for task in range(1, 41)}
    with_shared = AddTasks("s", 41, "k41", 41, (LARGE + b"in", b""), 1.0, shared=LARGE + b"shared")
    fill(path, SESSION, *(add_one(task) for task in outputs), *(ended(*each) for each in outputs.items()), with_shared)
    with rewritten(path) as connection:
        for table, column in (("tasks", "input"), ("results", "output"), ("submissions", "shared")):
            kept = f"SELECT data FROM payloads WHERE id = {table}.payload"
            connection.execute(f"UPDATE {table} SET {column} = ({kept}) WHERE payload IS NOT NULL")
        bring_down(connection, "0005")
    store = open_store(str(path))
    (stored,) = store.load().sessions
    assert [(task.task, task.input) for task in stored.tasks] == [(41, LARGE + b"in"), (42, b"")]
    assert stored.submissions[-1].shared == LARGE + b"shared"
    read: dict[int, bytes | None] = {}
    while page := store.results("s", Page(len(read))):
        assert len(page) < len(outputs), "large outputs end a page"
        read |= {result.task: result.output for result in page}
    assert read == outputs
    store.close()
    assert largest_in_trees_of_keys(path) <= 4096


def largest_in_trees_of_keys(path: Path) -> int:
    columns = (("tasks", "input"), ("results", "output"), ("submissions", "shared"))
    with closing(sqlite3.connect(path)) as connection:
        found = [connection.execute(f"SELECT max(length({c})) FROM {t}").fetchone() for t, c in columns]
    return max(size or 0 for (size,) in found)


def test_a_large_payload_is_stored_apart_and_goes_with_its_session(path: Path) -> None:
    edge = b"x" * 4096
    fill(path, SESSION, AddTasks("s", 1, "k", 1, (edge, edge + b"x"), 1.0, edge + b"y"), ended(1, edge + b"z"))
    (stored,) = load_and_close(path).sessions
    assert [task.input for task in stored.tasks] == [edge + b"x"]
    assert stored.submissions[0].shared == edge + b"y"
    assert largest_in_trees_of_keys(path) == 4096
    fill(path, DropSession("s"))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM payloads").fetchone() == (0,)
