"""Recovery of a damaged store."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.storage.flips import FILES, content, copied
from tests.storage.stored import SESSION, add_one, copied_in_use, fill, load_and_close, refusal
from ullage.model.error import Unavailable
from ullage.model.quota import Quota
from ullage.model.session import SessionInfo, SessionSpec
from ullage.service.store_port import AddTasks, PutQuota, PutSession
from ullage.storage.open import open_store
from ullage.storage.recover import recover


def damaged(left: Path, into: Path, suffix: str, at: int, size: int) -> Path:
    copy = copied(left, into)
    file = Path(f"{copy}{suffix}")
    data = bytearray(file.read_bytes())
    for position in range(at, at + size):
        data[position] ^= 1 if size == 1 else 0xA5
    file.write_bytes(data)
    refusal(copy)
    return copy


@pytest.mark.parametrize(("suffix", "at"), [("", 60_000), ("-wal", 10), ("-wal", 40_000), ("-wal", 70_001)])
def test_recovery_of_one_turned_bit_loses_nothing(left: Path, tmp_path: Path, suffix: str, at: int) -> None:
    expected = content(copied(left, tmp_path / "sound"))
    copy = damaged(left, tmp_path / "copy", suffix, at, 1)
    before = {each: Path(f"{copy}{each}").read_bytes() for each in FILES}
    assert recover(copy, keep=False).left_out == []
    assert {each: Path(f"{copy}{each}").read_bytes() for each in FILES} == before
    found = recover(copy, keep=True)
    assert (found.lost, found.left_out, found.sessions) == ([], [], 1)
    assert content(copy) == expected
    assert {each: Path(f"{found.aside}{each}").read_bytes() for each in FILES} == before


def test_recovery_of_a_lost_page_keeps_intact_records_and_names_lost_ones(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_store(str(path))
    store.load()
    store.write(PutQuota("team", Quota(max_workers=3))).result()
    for number, name in enumerate(("whole", "broken"), 1):
        session = PutSession(SessionInfo(name, SessionSpec("function"), 1.0, number))
        inputs = (name.encode() * 100_000,)
        store.write(session, AddTasks(name, 1, "k", 1, inputs, 1.0)).result()
    store.close()
    data = bytearray(path.read_bytes())
    middle = data.index(b"broken" * 500) + 300_000
    data[middle : middle + 9000] = bytes(9000)
    path.write_bytes(data)
    assert "differ from the last written state" in refusal(path).message
    found = recover(path, keep=True)
    assert len(found.lost) >= 2
    assert (found.sessions, found.left_out) == (1, ["session broken"])
    store = open_store(str(path))
    snapshot = store.load()
    store.close()
    assert [(each.session.id, [len(task.input) for task in each.tasks]) for each in snapshot.sessions] == [
        ("whole", [500_000])
    ]
    assert [quota.namespace for quota in snapshot.quotas] == ["team"]


def test_recovery_takes_a_database_without_its_witness_as_it_is(left: Path, tmp_path: Path) -> None:
    expected = content(copied(left, tmp_path / "sound"))
    copy = copied(left, tmp_path / "copy")
    Path(f"{copy}-witness").unlink()
    found = recover(copy, keep=True)
    assert (found.pages, found.sessions) == (None, 1)
    assert content(copy) == expected


def test_a_database_in_use_is_not_recovered(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_store(str(path))
    store.load()
    with pytest.raises(Unavailable, match="is in use"):
        recover(path, keep=True)
    store.close()


def test_recovery_of_a_sound_store_changes_nothing(left: Path, tmp_path: Path) -> None:
    copy = copied(left, tmp_path / "copy")
    before = {each: Path(f"{copy}{each}").read_bytes() for each in FILES}
    found = recover(copy, keep=True)
    assert (found.is_sound, found.sessions, found.aside) == (True, 1, None)
    assert {each: Path(f"{copy}{each}").read_bytes() for each in FILES} == before


def test_recovery_keeps_the_log_of_an_empty_file(left: Path, tmp_path: Path) -> None:
    copy = copied(left, tmp_path / "copy")
    os.truncate(copy, 0)
    log = Path(f"{copy}-wal").read_bytes()
    with pytest.raises(Unavailable, match="nothing was changed: restore a backup"):
        recover(copy, keep=True)
    assert Path(f"{copy}-wal").read_bytes() == log


def test_an_intact_earlier_commit_is_offered_and_kept_on_request(left: Path, tmp_path: Path) -> None:
    copy = copied(left, tmp_path / "copy")
    Path(f"{copy}-wal").unlink()
    with pytest.raises(Unavailable, match=r"intact at commit \d+ of \d+ .*--keep --as-it-is keeps it"):
        recover(copy, keep=True)
    assert recover(copy, keep=True, as_it_is=True).aside is not None
    store = open_store(str(copy))
    assert len(store.load().sessions) == 2
    store.close()


def test_recovery_of_a_file_of_a_newer_version_is_refused(left: Path, tmp_path: Path) -> None:
    copy = copied(left, tmp_path / "copy")
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(Unavailable, match="newer version"):
        recover(copy, keep=True)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.mkdir()
    with pytest.raises(Unavailable, match=f"{path} cannot be read or written .*must belong to the user"):
        recover(path, keep=True)


@pytest.mark.parametrize("renames", range(10))
def test_a_recovery_that_is_killed_is_gone_on_from_and_loses_nothing(left: Path, tmp_path: Path, renames: int) -> None:
    expected = content(copied(left, tmp_path / "sound"))
    copy = damaged(left, tmp_path / "copy", "", 60_000, 1)
    recover_until_killed(copy, renames)
    try:
        found = content(copy)
    except Unavailable:
        recover(copy, keep=True)
        found = content(copy)
    assert found == expected
    assert not [each for each in copy.parent.iterdir() if "recover" in each.name]


def recover_until_killed(path: Path, renames: int) -> None:
    """Recover in a process that ends, as by a kill, at the rename after so many."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    replace, done = Path.replace, count()

    def replace_or_end(self: Path, target: Path) -> Path:
        return os._exit(1) if next(done) == renames else replace(self, target)

    Path.replace = replace_or_end
    try:
        recover(path, keep=True)
    finally:
        os._exit(0)


@pytest.mark.parametrize("table", ["quotas", "gangs", "waits", "history", "stays"])
def test_the_first_page_of_a_table_can_be_lost_without_the_other_tables(left: Path, tmp_path: Path, table: str) -> None:
    copy = copied(left, tmp_path / "copy")
    with closing(sqlite3.connect(f"file:{left}?mode=ro", uri=True)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with copy.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    log = Path(f"{copy}-wal")
    log.write_bytes(without_page(log.read_bytes(), page, size))
    assert refusal(copy).code == "storage-damaged"
    found = recover(copy, keep=True)
    assert found.lost == [page]
    assert found.left_out == [f"some {table}"]
    assert found.sessions == 1
    content(copy)


def without_page(log: bytes, page: int, size: int) -> bytes:
    """A log in which the content of a page is damaged wherever it is."""
    kept, frame = bytearray(log), 24 + size
    for at in range(32, len(log) - frame + 1, frame):
        if int.from_bytes(log[at : at + 4]) == page:
            kept[at + 24 : at + frame] = bytes(size)
    return bytes(kept)


def test_a_restored_copy_is_refused_with_the_log_of_a_later_state(path: Path) -> None:
    fill(path, SESSION, add_one(1))
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    recover(backup, keep=True)
    fill(path, *map(add_one, range(2, 300)))  # checkpointed at the end
    store = open_store(str(path))
    store.load()
    store.write(add_one(300)).result()
    later = copied_in_use(path)
    store.close()
    for suffix in ("", "-witness"):
        shutil.copy(f"{backup}{suffix}", f"{later}{suffix}")
    assert "its write-ahead log" in refusal(later).message
    Path(f"{later}-wal").unlink()
    assert len(load_and_close(later).sessions[0].tasks) == 1
