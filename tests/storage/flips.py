"""Flip bits of a store that was killed, and open it: `python -m tests.storage.flips 1000`."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ullage.model.error import Unavailable
from ullage.model.event import Event
from ullage.model.quota import Quota
from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddEvent, AddResults, AddTasks, DropSession, Page, PutQuota, PutSession, Store
from ullage.storage.open import open_store

FILES = ("", "-wal", "-witness")


def build(folder: Path) -> Path:
    """Write a store with all kinds of rows, some in the file and some in the log; it is left as by a kill."""
    path, left = folder / "state.db", folder / "left.db"
    store = open_store(str(path))
    store.load()
    for number in (1, 2):
        store.write(PutSession(SessionInfo(f"s{number}", SessionSpec("function"), 1.0, number))).result()
    write_tasks(store, range(1, 200))
    store.close()
    store = open_store(str(path))
    store.load()
    write_tasks(store, range(200, 260))
    store.write(DropSession("s2")).result()
    store.write(PutQuota("team", Quota(max_workers=3)), AddEvent(Event(1, 1.0, "tick"))).result()
    for suffix in FILES:
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    store.close()
    return left


def write_tasks(store: Store, tasks: range) -> None:
    for task in tasks:
        store.write(AddTasks("s1", task, f"k{task}", task, (b"i" * (task % 7) * 900,), 1.0)).result()
        result = TaskResult("s1", task, task, TaskState.SUCCEED, 0, b"o" * task * 20, "", "e", 1.0, 2.0)
        if task % 3:
            store.write(AddResults((result,))).result()


def content(path: Path) -> object:
    """Everything that a reader can see, without the number of openings."""
    store = open_store(str(path))
    try:
        snapshot = store.load()
        results = store.results("s1", Page(0, 1000))
        return snapshot.sessions, snapshot.quotas, store.tasks("s1", Page(0, 1000)), results, store.events(Page())
    finally:
        store.close()


def flip(path: Path, into: Path, random_: random.Random, expected: object) -> tuple[str, str]:
    """Flip one bit of a copy; which file it was in, and what came of it."""
    copy = copied(path, into)
    suffix = random_.choice(FILES)
    file = Path(f"{copy}{suffix}")
    data = bytearray(file.read_bytes())
    used = len(data.rstrip(b"\0"))
    data[random_.randrange(used)] ^= 1 << random_.randrange(8)
    file.write_bytes(data)
    try:
        found = content(copy)
    except Unavailable as refusal:
        return suffix, refusal.code
    return suffix, "harmless" if found == expected else "SILENT"


def copied(path: Path, into: Path) -> Path:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    for suffix in FILES:
        shutil.copy(f"{path}{suffix}", into / f"copy.db{suffix}")
    return into / "copy.db"


def main() -> None:
    seed = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = build(Path(folder))
        copy = Path(folder) / "copy"
        expected = content(copied(path, copy))
        found = Counter(flip(path, copy, seed, expected) for _ in range(int(sys.argv[1])))
    for (suffix, what), count in sorted(found.items()):
        print(f"{suffix or 'database':10} {what:16} {count}")  # noqa: T201 - it is run by hand


if __name__ == "__main__":
    main()
