"""Deletion of sessions in steps, so that no other write waits long.

The transaction of `DropSession` renames the row of a session, from which moment no reader finds it, and deletes a
bounded number of its rows. The writer deletes the rest between other writes, and after a crash the next process does.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select, update

from ullage.storage import tables

STEP_ROWS = 2000
"""Rows that a transaction deletes of dropped sessions; claims and attempts of the same tasks go with them."""

_STEP_BYTES = 16 << 20
"""Bytes of large payloads after which a step ends."""

_PREFIX, _BEHIND = "/", "0"
"""How names of dropped sessions begin, as no name of a session may; and the least text after all of them."""

_sessions, _payloads = tables.sessions, tables.payloads

IS_DROPPED: ColumnElement[bool] = and_(_sessions.c.id > _PREFIX, _sessions.c.id < _BEHIND)
"""Whether a row of `sessions` is that of a dropped session. It uses the index of the names."""

DROPPED = select(_sessions.c.number).where(IS_DROPPED)
"""The query for the numbers of dropped sessions, whose rows are not all deleted."""


class _Keyed(NamedTuple):
    """Tables with rows of a session by a key, in the order of deletion; the last one has every key."""

    tables: tuple[Table, ...]
    key: str


_TASKS = _Keyed(tables.TASK_TABLES, "task")
_SUBMISSIONS = _Keyed((tables.submissions,), "submission")


def hide_session(connection: Connection, number: int) -> None:
    """Make a session unfindable, and its name free for another one."""
    hidden = {"id": f"{_PREFIX}{number}", "value": "{}", "common_data": None}
    connection.execute(update(_sessions).where(_sessions.c.number == number).values(hidden))


def last_dropped(connection: Connection) -> int:
    """Return the highest number of a dropped session, which no other may get before its rows are deleted; else 0."""
    return connection.execute(select(func.max(_sessions.c.number)).where(IS_DROPPED)).scalar() or 0


def delete_rows(connection: Connection, room: int) -> int:
    """Delete about `room` rows of dropped sessions. Return the room that is left; without any, rows may be left."""
    while room > 0 and (number := connection.execute(DROPPED.limit(1)).scalar()) is not None:
        for keyed in (_TASKS, _SUBMISSIONS):
            room -= _delete_keyed(connection, keyed, number, room)
        room -= _delete_payloads(connection, number, room)
        if room > 0:
            connection.execute(delete(_sessions).where(_sessions.c.number == number))
            room -= 1
    return room


def _delete_keyed(connection: Connection, keyed: _Keyed, number: int, room: int) -> int:
    """Delete the rows of a session with the lowest `room` keys.

    Return the number of deleted keys, `room` if keys may be left.
    """
    if room <= 0:
        return 0
    *_, whole = keyed.tables
    keys = select(whole.c[keyed.key]).where(whole.c.session == number).order_by(whole.c[keyed.key])
    behind = connection.execute(keys.offset(room).limit(1)).scalar()
    deleted = 0
    for table in keyed.tables:
        below = () if behind is None else (table.c[keyed.key] < behind,)
        deleted = connection.execute(delete(table).where(table.c.session == number, *below)).rowcount
    return room if behind is not None else deleted


def _delete_payloads(connection: Connection, number: int, room: int) -> int:
    """Delete payloads of a session up to a size. Return their number, `room` if some may be left."""
    if room <= 0:
        return 0
    of_session = _payloads.c.session == number
    sizes = select(_payloads.c.id, func.length(_payloads.c.data)).where(of_session).order_by(_payloads.c.id)
    last, count, total = None, 0, 0
    for payload, size in connection.execute(sizes.limit(room)):
        last, count, total = payload, count + 1, total + size
        if total >= _STEP_BYTES:
            break
    if last is None:
        return 0
    connection.execute(delete(_payloads).where(of_session, _payloads.c.id <= last))
    return room if total >= _STEP_BYTES else count
