"""Rows reach the driver in few statements, in values that need no conversion, and complete."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.storage.stored import SESSION
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddResults, AddTasks, Page
from ullage.storage import statements
from ullage.storage.open import open_store
from ullage.storage.statements import MAX_VARIABLES, driver_of
from ullage.storage.tables import INLINE_BYTES

OUTPUTS = (None, b"", b"short", b"s" * INLINE_BYTES, b"l" * (INLINE_BYTES + 1))


def result(task: int, output: bytes | None, started_at: float | None = 1.0) -> TaskResult:
    return TaskResult("s", task, task, TaskState.SUCCEED, 0, output, "", "e", started_at, 2.0)


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 1000, MAX_VARIABLES // 4 + 1])
def test_rows_of_all_forms_in_one_write_are_read_as_they_were_written(rows: int) -> None:
    store = open_store("memory://")
    store.load()
    inputs = tuple((OUTPUTS[task % 5] or b"") for task in range(rows))
    results = tuple(result(task, OUTPUTS[task % 5], 1.0 if task % 2 else None) for task in range(1, rows + 1, 2))
    tasks = AddTasks("s", 1, "", 1, inputs, 1.0, shared=b"shared" if rows % 2 else None)
    store.write(SESSION, tasks, AddResults(results)).result()
    assert store.results("s", Page(0, rows)) == sorted(results, key=lambda each: each.sequence)
    (stored,) = store.load().sessions
    assert [(task.task, task.input) for task in stored.tasks] == list(enumerate(inputs, 1))[1::2]
    store.close()


def test_values_of_a_small_task_need_no_adapter_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[Any]()

    class Noting:
        """The driver, which notes what it is given."""

        def __init__(self, connection: Connection) -> None:
            self._driver = driver_of(connection)

        def execute(self, statement: str, parameters: tuple[Any, ...]) -> sqlite3.Cursor:
            given.extend(parameters)
            return self._driver.execute(statement, parameters)

    store = open_store("memory://")
    store.load()
    store.write(SESSION).result()
    monkeypatch.setattr(statements, "driver_of", Noting)
    three = tuple(result(task, b"out") for task in (1, 2, 3))
    store.write(AddTasks("s", 1, "k", 1, (b"in",) * 3, 1.0), AddResults(three)).result()
    store.close()
    assert sum(value is None for value in given) == 2, "the rows to four tasks and to four results begin so"
    assert {type(value) for value in given} == {int, float, str, bytearray, type(None)}
