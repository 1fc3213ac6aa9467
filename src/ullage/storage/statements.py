"""Statements that insert many rows in one step.

Python releases the interpreter lock during every step of a statement. A busy event loop returns it only every 5 ms, so
a row per step would mean 200 rows a second. Here one step inserts thousands of rows. The number of rows is padded to a
power of two with rows that begin with NULL, which the statement skips. So there are few texts, and SQLite compiles each
once.

The driver searches an adapter for each value that is no int, float, str or bytearray, which takes longer than the
value itself. So trailing NULL columns of a row are left out, and a small blob is passed as a `bytearray`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from sqlalchemy import Column, Connection, LargeBinary, Table

MAX_VARIABLES = 32_766
"""The most parameters of one statement in the usual build of SQLite."""

MAX_BLOB_BYTES = 4 * 1024 * 1024
"""Bytes of blobs in one statement of several rows: the driver copies them, and holds the copy until its next use."""

_BLOCK_ROWS = 64
"""Rows that SQLite compiles as one list: the time per row grows with the length of a list."""

CACHED_STATEMENTS = 384
"""Compiled statements that a connection caches: all sizes for all tables, and others."""


def insert_rows(connection: Connection, table: Table, values: Sequence[Any], width: int) -> None:
    """Insert rows given as one flat sequence of values, in the order of the table's first `width` columns.

    The other columns are NULL. The first column must not be NULL in any row.
    """
    _insert(connection, _Form(table, width), values)


def put_rows(connection: Connection, table: Table, values: Sequence[Any]) -> None:
    """Insert rows of all columns. A row with a stored unique first column, or composite key, is updated."""
    _insert(connection, _Form(table, len(table.columns), replaces=True), values)


class _Form(NamedTuple):
    table: Table
    width: int
    replaces: bool = False


def _insert(connection: Connection, form: _Form, values: Sequence[Any]) -> None:
    most = MAX_VARIABLES // form.width * form.width
    for start in range(0, len(values), most):
        _insert_part(connection, form, tuple(values[start : start + most]))


def _insert_part(connection: Connection, form: _Form, part: tuple[Any, ...]) -> None:
    width = form.width
    rows = len(part) // width
    if rows > 1 and _blob_bytes(form, part) > MAX_BLOB_BYTES:
        middle = rows // 2 * width
        _insert_part(connection, form, part[:middle])
        _insert_part(connection, form, part[middle:])
        return
    padded = min(_power_at_least(rows), MAX_VARIABLES // width)
    padding = (None, *(0,) * (width - 1)) * (padded - rows)
    driver_of(connection).execute(_insert_text(form, padded), part + padding).close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the connection of the driver, which bypasses SQLAlchemy. Its errors are those of `sqlite3`."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def _blob_bytes(form: _Form, part: tuple[Any, ...]) -> int:
    return sum(sum(map(len, filter(None, part[column :: form.width]))) for column in _blob_columns(form))


@lru_cache
def _blob_columns(form: _Form) -> tuple[int, ...]:
    return tuple(n for n, column in enumerate(_columns(form)) if isinstance(column.type, LargeBinary))


@lru_cache(maxsize=CACHED_STATEMENTS)
def _insert_text(form: _Form, rows: int) -> str:
    table, names = form.table, [column.name for column in _columns(form)]
    row = f"({','.join('?' * len(names))})"
    lists = [",".join([row] * min(_BLOCK_ROWS, rows - start)) for start in range(0, rows, _BLOCK_ROWS)]
    blocks = [f"SELECT * FROM (VALUES {each}) WHERE column1 IS NOT NULL" for each in lists]  # noqa: S608 - own text
    sql = f"INSERT INTO {table.name} ({','.join(map(_quoted, names))}) {' UNION ALL '.join(blocks)}"
    if not form.replaces:
        return sql
    keys = _conflict_columns(table)
    changes = ",".join(f"{_quoted(name)}=excluded.{_quoted(name)}" for name in names if name not in keys)
    return f"{sql} ON CONFLICT ({','.join(_quoted(key) for key in keys)}) DO UPDATE SET {changes}"


def _columns(form: _Form) -> list[Column[Any]]:
    return list(form.table.columns)[: form.width]


def _conflict_columns(table: Table) -> list[str]:
    keys = [column.name for column in table.primary_key]
    return keys if len(keys) > 1 else [next(iter(table.columns)).name]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _power_at_least(count: int) -> int:
    return 1 << (count - 1).bit_length()
