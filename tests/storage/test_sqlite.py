"""What holds for the file: its refusals, its lock, its mode, its size, and what a crash leaves."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.event import Event
from ullage.model.gpu import Gpu
from ullage.model.nomination import Nomination
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.session import Session, SessionSpec
from ullage.model.zone_placement import ZonePlacement
from ullage.service.store_port import (
    AddEvent,
    AddTasks,
    DropSession,
    Page,
    PutAllocation,
    PutNomination,
    PutQuota,
    PutSession,
    Record,
    Snapshot,
)
from ullage.storage.open import open_store
from ullage.storage.schema import migrate
from ullage.storage.store import SqliteStore
from ullage.storage.tables import METADATA
from ullage.storage.torn import torn_bytes

SESSION = PutSession(Session("s", SessionSpec("function"), 1.0, 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def add_one(number: int, input_: bytes = b"x") -> AddTasks:
    return AddTasks("s", number, f"k{number}", number, (input_,), 1.0)


def fill(path: Path, *records: Record) -> None:
    store = open_store(str(path))
    store.load()
    store.write(*records).result()
    store.close()


def failure(future: Future[None]) -> Unavailable:
    error = future.exception(30)
    assert isinstance(error, Unavailable)
    return error


def load_and_close(path: Path) -> Snapshot:
    store = open_store(str(path))
    try:
        return store.load()
    finally:
        store.close()


def refusal(path: Path) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        load_and_close(path)
    return caught.value


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


def test_content_that_is_not_what_was_written_is_refused(path: Path) -> None:
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


def test_migrations_build_exactly_the_tables_that_are_described() -> None:
    schemas = []
    for build in (METADATA.create_all, migrate):
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            build(connection)
            query = text("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%' ORDER BY name")
            schemas.append([tuple(row) for row in connection.execute(query)])
        engine.dispose()
    assert schemas[0] == schemas[1]


def test_a_file_of_the_first_version_is_brought_up_with_what_it_holds(path: Path) -> None:
    fill(path, SESSION, add_one(1))
    with closing(sqlite3.connect(path)) as connection:
        for table in ("allocations", "quotas", "nominations"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()
    quota = PutQuota("team", Quota(max_workers=3))
    fill(path, quota)
    snapshot = load_and_close(path)
    assert [(s.session.id, [task.task for task in s.tasks]) for s in snapshot.sessions] == [("s", [1])]
    assert snapshot.quotas == (quota,)


def test_allocations_from_before_zones_were_known_lie_nowhere_in_particular(path: Path) -> None:
    asked = ResourceRequirement.of(gpu=1)
    held = Allocation("a", "n1", asked, ("g",), claim=Claim("team"), placement=ZonePlacement((0,), (1, 2)))
    fill(path, PutAllocation(held))
    with closing(sqlite3.connect(path)) as connection:
        query = "UPDATE allocations SET value = json_remove(value, '$.placement', '$.requirement.alignment')"
        assert connection.execute(query).rowcount == 1
        connection.commit()
    assert load_and_close(path).allocations == (replace(held, placement=None),)


@pytest.mark.parametrize(("stored", "read"), [("1", (1,)), ("0", (0,)), ("null", ()), ("-1", ()), ("64", ())])
def test_the_zone_of_a_card_becomes_its_zones(path: Path, stored: str, read: tuple[int, ...]) -> None:
    asked, card = ResourceRequirement.of(memory=2**62, gpu=1), Gpu("g", 0, model="é")
    held = Allocation("a", "n1", asked, ("g",), claim=Claim("team"), cards=(card,))
    fill(path, PutAllocation(held))
    with closing(sqlite3.connect(path)) as connection:
        (value,) = connection.execute("SELECT value FROM allocations").fetchone()
        old = value.replace('"zones":[]', f'"numa_zone":{stored}')
        assert old != value
        connection.execute("UPDATE allocations SET value = ?", (old,))
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
        connection.commit()
    (found,) = load_and_close(path).allocations
    assert (found, found.cards) == (held, (replace(card, zones=read),))


@pytest.mark.parametrize(("stored", "read"), [(10**30, 2**31 - 1), (-(2**40), -(2**31)), (-7, -7), (2**31 - 1,) * 2])
def test_priorities_that_were_taken_before_they_had_a_range_are_brought_into_it(
    path: Path, stored: int, read: int
) -> None:
    request = Request("r", ResourceRequirement.of(gpu=1))
    held = Allocation("a", "n1", request.requirement, ("g",), claim=Claim("team", labels={"x": "y"}))
    fill(path, PutAllocation(held), PutNomination(Nomination(request, "n1", 5.0, ("g",))))
    with closing(sqlite3.connect(path)) as connection:
        for table in ("allocations", "nominations"):
            (value,) = connection.execute(f"SELECT value FROM {table}").fetchone()
            old = value.replace('"priority":0', f'"priority":{stored}')
            assert old != value
            connection.execute(f"UPDATE {table} SET value = ?", (old,))
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
        connection.commit()
    snapshot = load_and_close(path)
    assert snapshot.allocations == (replace(held, claim=replace(held.claim, priority=read)),)
    (nomination,) = snapshot.nominations
    assert nomination.request == replace(request, claim=Claim(priority=read))


def test_a_second_store_on_the_same_file_is_refused_and_told_who_has_it(path: Path, tmp_path: Path) -> None:
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
    files = dict.fromkeys(["state.db", "state.db-wal", "state.db-shm", "state.db.lock"], 0o600)
    assert modes == files | {"here": 0o700}


def test_a_full_disk_fails_the_write_and_all_after_it_but_keeps_what_was_acknowledged(path: Path) -> None:
    store = SqliteStore(path)
    store.load()
    store.write(SESSION, add_one(1)).result()
    assert store._database is not None
    with store._database.writing() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
    for future in (store.write(add_one(2), add_one(3, b"x" * 100_000)), store.write(add_one(4))):
        error = failure(future)
        assert error.code == "storage-failed"
        assert "full" in error.message
    store.close()
    (stored,) = load_and_close(path).sessions
    assert [task.task for task in stored.tasks] == [1]


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


def test_a_repeated_reading_page_is_not_changed_by_writes_in_between(path: Path) -> None:
    store = open_store(str(path))
    store.load()
    store.write(SESSION, add_one(1)).result()
    first = store.tasks("s", Page(limit=1))
    store.write(add_one(2)).result()
    assert store.tasks("s", Page(limit=1)) == first
    store.close()


def write_without_closing(path: Path, writes: int) -> Path:
    """Leave the file and its log as a process does that ends in the middle: nothing is checkpointed."""
    store = open_store(str(path))
    store.load()
    store.write(SESSION).result()
    for number in range(1, writes + 1):
        store.write(add_one(number)).result()
    copy = path.with_name("copy.db")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    store.close()
    return copy


def test_a_torn_write_is_cut_back_to_the_last_good_one_and_said_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = write_without_closing(path, 20)
    log = Path(f"{copy}-wal")
    os.truncate(log, log.stat().st_size - 100)
    (stored,) = load_and_close(copy).sessions
    assert [task.task for task in stored.tasks] == list(range(1, 20))
    assert "unfinished write" in caplog.text


def test_a_log_that_ends_with_a_commit_is_not_called_torn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = write_without_closing(path, 20)
    assert torn_bytes(Path(f"{copy}-wal")) == 0
    assert len(load_and_close(copy).sessions[0].tasks) == 20
    assert caplog.text == ""


CHILD = """
import sys
from ullage.model.quota import Quota
from ullage.model.session import Session, SessionSpec
from ullage.service.store_port import AddTasks, PutSession
from ullage.storage.open import open_store

store = open_store(sys.argv[1])
store.load()
store.write(PutSession(Session("s", SessionSpec("function"), 1.0, 1))).result()
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
