"""Statements that insert many rows in one step.

Python lets other threads run during every step of a statement, and needs its turn again afterwards.
A busy event loop gives that turn back only every 5 ms, so a row per step would mean 200 rows a
second. Here one step inserts thousands of rows. The number of rows is padded to a power of two with
rows of NULL, which the statement skips: few texts exist, and SQLite compiles each of them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table

MAX_VARIABLES = 32_766
"""Parameters one statement may have in SQLite as it is commonly built."""

MAX_BLOB_BYTES = 4 * 1024 * 1024
"""Blobs in one statement of several rows: the driver copies them, and keeps the copy until its next use."""

CACHED_STATEMENTS = 256
"""Compiled statements a connection keeps: all sizes for all tables, with room for the rest."""


def insert_rows(connection: Connection, table: Table, values: Sequence[Any], *, replace: bool = False) -> None:
    """Insert rows given as one flat sequence of values, in the order of the table's columns.

    The first column must not be NULL in any row. With `replace` a row whose unique first column, or
    whose primary key if that is composite, is already stored takes the new values.
    """
    width = len(table.columns)
    most = _largest_power(MAX_VARIABLES // width) * width
    for start in range(0, len(values), most):
        _insert_part(connection, table, tuple(values[start : start + most]), replace=replace)


def _insert_part(connection: Connection, table: Table, part: tuple[Any, ...], *, replace: bool) -> None:
    width = len(table.columns)
    rows = len(part) // width
    if rows > 1 and _blob_bytes(table, part) > MAX_BLOB_BYTES:
        middle = rows // 2 * width
        _insert_part(connection, table, part[:middle], replace=replace)
        _insert_part(connection, table, part[middle:], replace=replace)
        return
    padded = _power_at_least(rows)
    padding = (None,) * (padded * width - len(part))
    connection.exec_driver_sql(_insert_text(table, padded, replace=replace), part + padding)


def _blob_bytes(table: Table, part: tuple[Any, ...]) -> int:
    width = len(table.columns)
    return sum(sum(map(len, filter(None, part[column::width]))) for column in _blob_columns(table))


@lru_cache
def _blob_columns(table: Table) -> tuple[int, ...]:
    return tuple(n for n, column in enumerate(table.columns) if isinstance(column.type, LargeBinary))


@lru_cache(maxsize=CACHED_STATEMENTS)
def _insert_text(table: Table, rows: int, *, replace: bool) -> str:
    names = [column.name for column in table.columns]
    row = f"({','.join('?' * len(names))})"
    sql = (
        f"INSERT INTO {table.name} ({','.join(_quoted(name) for name in names)}) "  # noqa: S608 - names of our own tables
        f"SELECT * FROM (VALUES {','.join([row] * rows)}) WHERE column1 IS NOT NULL"
    )
    if not replace:
        return sql
    keys = _conflict_columns(table)
    changes = ",".join(f"{_quoted(name)}=excluded.{_quoted(name)}" for name in names if name not in keys)
    return f"{sql} ON CONFLICT ({','.join(_quoted(key) for key in keys)}) DO UPDATE SET {changes}"


def _conflict_columns(table: Table) -> list[str]:
    keys = [column.name for column in table.primary_key]
    return keys if len(keys) > 1 else [next(iter(table.columns)).name]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _largest_power(limit: int) -> int:
    return 1 << limit.bit_length() - 1


def _power_at_least(count: int) -> int:
    return 1 << (count - 1).bit_length()
