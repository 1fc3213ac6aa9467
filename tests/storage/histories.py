"""Stores that are killed while they write, again and again: `python -m tests.storage.histories 100`.

Each history is a row of processes that write to one file until they are killed. Their writes follow from a seed, so the
content after any number of writes is known. What a kill or a power cut may leave undone is undone now and then, and
another program looks into the file.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Semaphore
from typing import NamedTuple

from ullage.model.error import Unavailable
from ullage.model.quota import Quota
from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddResults, AddTasks, DropSession, PutQuota, PutSession, Record, Snapshot
from ullage.storage import database, witness
from ullage.storage.open import open_store
from ullage.storage.store import SqliteStore
from ullage.storage.wal import log_path, read_log
from ullage.storage.witness import read_witness, witness_path

_SIZES = (10, 3000, 50_000)
_MOST_IN_FLIGHT = 8

Content = tuple[int, dict[str, tuple[dict[int, int], int]]]
"""The number of writes, and for each session its open tasks with the bytes of their inputs, and its finished tasks."""


@dataclass
class Model:
    """The writes of a history: the same for the same seed."""

    seed: int
    written: int = 0
    open: dict[str, dict[int, int]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def next(self) -> tuple[Record, ...]:
        self.written += 1
        names, number = sorted(self.open), PutQuota("written", Quota(max_workers=self.written))
        choice = self._random.random()
        if not names or choice < 0.1:
            return self._begin(), number
        name = self._random.choice(names)
        if choice < 0.2 and len(names) > 1:
            del self.open[name], self.ended[name]
            return DropSession(name), number
        if choice < 0.4 and self.open[name]:
            return self._end(name), number
        size = self._random.choice(_SIZES)
        self.open[name][self.written] = size
        return AddTasks(name, self.written, str(self.written), self.written, (b"x" * size,), 1.0), number

    def content(self) -> Content:
        return self.written, {name: (tasks, self.ended[name]) for name, tasks in self.open.items()}

    def _begin(self) -> Record:
        name = f"s{self.written}"
        self.open[name], self.ended[name] = {}, 0
        return PutSession(SessionInfo(name, SessionSpec("function"), 1.0, self.written))

    def _end(self, name: str) -> Record:
        task = min(self.open[name])
        del self.open[name][task]
        self.ended[name] += 1
        result = TaskResult(
            name, task, self.ended[name], TaskState.SUCCEED, 0, b"y" * self._random.choice(_SIZES), "", "e", 1.0, 2.0
        )
        return AddResults((result,))


def model_at(seed: int, written: int) -> Model:
    model = Model(seed)
    while model.written < written:
        model.next()
    return model


def content(snapshot: Snapshot) -> Content:
    written = next((quota.quota.max_workers or 0 for quota in snapshot.quotas), 0)
    return written, {
        each.session.id: (
            {task.task: len(task.input) for task in each.tasks},
            each.counts[TaskState.SUCCEED.value],
        )
        for each in snapshot.sessions
    }


# --- the process that is killed ---


def set_up(seed: int) -> None:
    """Choose how early the log is brought into the file, and the witness begun again."""
    chosen = random.Random(seed)
    pages, log_bytes = chosen.choice((1, 8, 64, 4096)), chosen.choice((1000, 4_000_000))
    settings = (each for each in database._SETTINGS if "wal_autocheckpoint" not in each)
    database._SETTINGS = (*settings, f"wal_autocheckpoint = {pages}")
    witness._MOST_LOG_BYTES = log_bytes


def write_until_killed(path: str, seed: int, round_: int, tell: Callable[[object], None]) -> None:
    """Tell what is found, and then the number of each write when it is acknowledged."""
    set_up(seed + round_)
    store, chosen = open_store(path), random.Random(seed + round_)
    assert isinstance(store, SqliteStore)
    try:
        found = content(store.load())
    except Unavailable as error:
        tell(error.message)
        return
    tell(found)
    model, free, readers = model_at(seed, found[0]), Semaphore(_MOST_IN_FLIGHT), ExitStack()
    while True:
        free.acquire()
        future = store.write(*model.next())
        future.add_done_callback(lambda _, number=model.written: (tell(number), free.release()))
        if chosen.random() < 0.3:
            future.result()
        if model.written % 20 == 0:
            readers.close()
        elif chosen.random() < 0.2 and store._database is not None:
            reader = readers.enter_context(store._database.reading())
            reader.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one()


def _child(path: str, seed: int, round_: int, pipe: Connection) -> None:
    write_until_killed(path, seed, round_, pipe.send)


# --- who kills it ---


class History:
    """One file, and the processes that write to it. It raises at the first difference."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed, self._random = path, seed, random.Random(seed)
        self._acknowledged = self._round = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["pytest", "tests.storage.histories"])

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._round += 1
            self._write_and_kill(self._random.randrange(60))
            if self._random.random() < 0.5:
                cut_power(self._path, self._random)
            if self._random.random() < 0.3:
                look_into(self._path)
        store = open_store(str(self._path))
        try:
            self._compare(content(store.load()))
        finally:
            store.close()

    def _write_and_kill(self, writes: int) -> None:
        mine, its = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=_child, args=(str(self._path), self._seed, self._round, its))
        process.start()
        its.close()
        self._compare(mine.recv())
        until = self._acknowledged + writes
        try:
            while self._acknowledged < until:
                self._acknowledged = mine.recv()
            process.kill()
            while True:
                self._acknowledged = mine.recv()
        except EOFError:
            process.join()
        assert process.exitcode == -signal.SIGKILL, f"seed {self._seed}, round {self._round}: {process.exitcode}"

    def _compare(self, found: object) -> None:
        where = f"seed {self._seed}, round {self._round}, {self._path}: {found}"
        assert isinstance(found, tuple), where
        assert found[0] >= self._acknowledged, where
        assert found == model_at(self._seed, found[0]).content(), where
        self._acknowledged = found[0]


def look_into(path: Path) -> None:
    """Open and close it as another program does, which brings the log into the file and removes it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def cut_power(path: Path, chosen: random.Random) -> None:
    """Undo what need not have reached the disk: the last record, or a part of the commit that has none."""
    testimony = read_witness(path)
    if testimony is None or not log_path(path).exists():
        return
    log = read_log(log_path(path), testimony.position)
    if log.salts != testimony.position.salts:
        return
    if not log.commits:
        # The records of a run of the log may all be lost: they are on the disk before the next run begins.
        if records := [record for record in records_of(path) if record.salts == log.salts]:
            cut_witness(path, chosen.choice(records).at + chosen.choice((0, 1, 20)))
    elif not _was_brought_into_the_file(path, log.commits[-1].sums):
        size = log_path(path).stat().st_size
        os.truncate(log_path(path), chosen.randrange(testimony.position.end, size + 1))


def _was_brought_into_the_file(path: Path, sums: dict[int, int]) -> bool:
    """Return whether a page of a commit is in the file: SQLite writes none before the log is on the disk."""
    with path.open("rb") as file:
        found = dict(enumerate(database.file_sums(file, 4096), 1))
    return any(found.get(page) == total for page, total in sums.items())


def drop_last_record(path: Path, kept_bytes: int = 0) -> None:
    """Leave so many bytes of the last record of a witness."""
    if records := records_of(path):
        cut_witness(path, records[-1].at + kept_bytes)


class RecordAt(NamedTuple):
    at: int
    salts: bytes


def records_of(path: Path) -> list[RecordAt]:
    """Return where the records of a witness begin, and in which run of the log their commits are."""
    data = witness_path(path).read_bytes()
    (pages,) = struct.unpack_from("<I", data, 20)
    at, found = 16 + struct.calcsize("<IIQ8sQI") + 4 * pages + 4, []
    while at + 4 <= len(data) and (size := struct.unpack_from("<I", data, at)[0]):
        found.append(RecordAt(at, data[at + 20 : at + 28]))
        at += 8 + size
    return found


def cut_witness(path: Path, end: int) -> None:
    file = witness_path(path)
    data = file.read_bytes()
    file.write_bytes(data[:end] + bytes(len(data) - end))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(sys.argv[1])):
            History(Path(folder) / f"{seed}.db", seed).run(8)
    print(f"{sys.argv[1]} histories of 8 kills: each start had all that was acknowledged")  # noqa: T201 - by hand


if __name__ == "__main__":
    main()
