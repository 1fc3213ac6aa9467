"""Stores that tests fill, open, and leave as a kill does."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from pathlib import Path

import pytest

from ullage.model.error import Unavailable
from ullage.model.session import SessionInfo, SessionSpec
from ullage.service.store_port import AddTasks, PutSession, Record, Snapshot
from ullage.storage.open import open_store

SESSION = PutSession(SessionInfo("s", SessionSpec("function"), 1.0, 1))


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


def write_without_closing(path: Path, writes: int) -> Path:
    """Leave the file and its log as a process does that ends in the middle: nothing is checkpointed."""
    store = open_store(str(path))
    store.load()
    store.write(SESSION).result()
    for number in range(1, writes + 1):
        store.write(add_one(number)).result()
    copy = copied_in_use(path)
    store.close()
    return copy


def copied_in_use(path: Path, number: int = 0) -> Path:
    copy = path.with_name(f"copy-{number}-of-{path.name}")
    for suffix in ("", "-wal", "-witness"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    return copy
