"""The page of the database: it names every table with its columns, and its queries run on a store with content."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab import Machine, a_node
from ullage.storage import tables

PAGE = (Path(__file__).parents[2] / "docs/reference/database.md").read_text()
QUERIES = re.findall(r"\n([^\n]+):\n\n```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after a day of work: two sessions have ended, and one runs."""
    path = tmp_path_factory.mktemp("store") / "state.db"
    with Machine(str(path), a_node(cpu=8, gpus=2)) as machine:
        machine.now = 1_790_000_000.0
        machine.service.accounting.heartbeat()
        for name, code in (("one", 0), ("two", 1)):
            machine.session(name, "cpu=1,mem=1g,gpu=1", tasks=1, owner="ann")
            machine.pass_time(3600)
            machine.engine.finish(machine.engine.busy[0], code, message="" if code == 0 else "no such file")
            machine.pump()
            machine.service.sessions.close(name, lambda: None)
            machine.pump()
        machine.session("three", "cpu=1,gpu=0.5", tasks=1, owner="bob")
        machine.engine.kill(machine.engine.busy[0], "out of memory")
        machine.pump()
        machine.service.accounting.heartbeat()
        machine.pump()
        machine.store.write().result()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE stays SET memory_peak_bytes = 1048576")
            connection.commit()
    return path


def test_every_table_and_column_is_on_the_page() -> None:
    for table in tables.METADATA.tables.values():
        row = next(
            line for line in PAGE.splitlines() if line.startswith("| `") and f"`{table.name}`" in line.split("|")[1]
        )
        if table not in (*tables.NAMED, tables.store):
            assert not [column.name for column in table.columns if f"`{column.name}`" not in row]


def test_there_are_ten_queries() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[title for title, _ in QUERIES])
def test_each_query_finds_something(database: Path, query: str) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute(query).fetchall()
    assert rows
    assert any(value for row in rows for value in row)
