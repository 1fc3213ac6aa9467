"""The records of one transaction.

Records of a kind are merged over all writes of a group, so that each table needs few statements. The order of the
tables satisfies foreign keys. Only the deletion of a session is a barrier: later records may belong to a new session
of the same name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import msgspec
from sqlalchemy import Connection, Table, delete, func, select, update

from ullage.model.task import TaskState
from ullage.service.store_port import (
    AddClaims,
    AddEvent,
    AddResults,
    AddTasks,
    Drop,
    DropExpired,
    DropSession,
    PutAllocation,
    PutApplication,
    PutAttempts,
    PutCapacity,
    PutExecutor,
    PutGang,
    PutHistory,
    PutNode,
    PutNomination,
    PutNotice,
    PutQueue,
    PutQuota,
    PutSession,
    PutStay,
    PutToken,
    PutWait,
    Record,
)
from ullage.storage import tables
from ullage.storage.past import account_row, drop_expired
from ullage.storage.purge import STEP_ROWS, delete_rows, hide_session
from ullage.storage.statements import insert_rows, put_rows

_STATE_TEXT = {state: state.value for state in TaskState}


class _Named(NamedTuple):
    """How records of one kind are stored: the table, the key there, and the value, which is JSON."""

    table: Table
    key: Callable[[Any], str]
    value: Callable[[Any], object] = lambda record: record


_NAMED: dict[type, _Named] = {
    PutApplication: _Named(tables.applications, attrgetter("application.name"), attrgetter("application")),
    PutQueue: _Named(tables.queues, attrgetter("queue.name"), attrgetter("queue")),
    PutNode: _Named(tables.nodes, attrgetter("name")),
    PutExecutor: _Named(tables.executors, attrgetter("executor")),
    PutAllocation: _Named(tables.allocations, attrgetter("allocation.id"), attrgetter("allocation")),
    PutNomination: _Named(tables.nominations, attrgetter("nomination.request.uid"), attrgetter("nomination")),
    PutGang: _Named(tables.gangs, attrgetter("key")),
    PutWait: _Named(tables.waits, attrgetter("session")),
    PutQuota: _Named(tables.quotas, attrgetter("namespace")),
    PutNotice: _Named(tables.notices, attrgetter("notice.id"), attrgetter("notice")),
    PutToken: _Named(tables.access_tokens, attrgetter("token.id"), attrgetter("token")),
}
_APPENDED = (tables.payloads, tables.submissions, tables.tasks, tables.claims, tables.results, tables.events)
_CLAIM = len(tables.claims.columns)
_INLINE_TASK = len(tables.tasks.columns) - 1
_INLINE_RESULT = len(tables.results.columns) - 1
"""Columns of a row with an inline payload; a further one has the id of a payload in its own table."""


class Batch:
    """Rows to be written by `flush`. `numbers` caches the numbers of sessions over several batches.

    Raises (from `add` and `flush`):
        LookupError: a record names a session that is not stored.
        SQLAlchemyError, sqlite3.Error: the database refused a row; the transaction must be rolled back.
    """

    def __init__(self, connection: Connection, numbers: dict[str, int]) -> None:
        self._connection = connection
        self._numbers = numbers
        self.dropped_sessions = False
        self._room = STEP_ROWS
        self._last_payload: int | None = None
        # By name; the last record wins, and None deletes.
        self._named: dict[Table, dict[str | int, tuple[Any, ...] | None]] = {
            table: {} for table in (*tables.NAMED, tables.sessions, *tables.ACCOUNTS)
        }
        # By the number of columns before the NULL ones. Flat: value after value, row after row.
        self._appended: dict[Table, dict[int, list[Any]]] = {table: defaultdict(list) for table in _APPENDED}
        self._attempts: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, record: Record) -> None:
        """Add a record; records are added in the order of their writes."""
        named = _NAMED.get(type(record))
        if named is None:
            self._ADDERS[type(record)](self, record)
        else:
            key = named.key(record)
            self._named[named.table][key] = (key, msgspec.json.encode(named.value(record)).decode())

    @property
    def left_rows(self) -> bool:
        """Whether rows of dropped sessions may be left, which `delete_rows` deletes later."""
        return self._room <= 0

    def flush(self) -> None:
        """Write the added records in the open transaction."""
        for table, named in self._named.items():
            if named:
                self._flush_named(table, named)
        attempts = list(chain.from_iterable(key + value for key, value in self._attempts.items()))
        self._attempts.clear()
        for table, appended in self._appended.items():
            for width, values in appended.items():
                insert_rows(self._connection, table, values, width)
            appended.clear()
        self._last_payload = None
        put_rows(self._connection, tables.attempts, attempts)

    def _flush_named(self, table: Table, named: dict[str | int, tuple[Any, ...] | None]) -> None:
        key = next(iter(table.columns))
        for name in [name for name, row in named.items() if row is None]:
            self._connection.execute(delete(table).where(key == name))
        rows = list(chain.from_iterable(row for row in named.values() if row is not None))
        put_rows(self._connection, table, rows)
        named.clear()

    def _add_tasks(self, record: AddTasks) -> None:
        number = self._number(record.session)
        count = len(record.inputs)
        shared, payload = self._inline(number, record.shared, None)
        self._append(
            tables.submissions,
            (number, record.submission, record.key, record.first, count, record.created_at, shared, payload),
        )
        ids = range(record.first, record.first + count)
        if max(map(len, record.inputs), default=0) <= tables.INLINE_BYTES:
            rows = zip(repeat(number), ids, repeat(record.submission), map(bytearray, record.inputs))
            self._appended[tables.tasks][_INLINE_TASK].extend(chain.from_iterable(rows))
            return
        for task, whole in zip(ids, record.inputs, strict=True):
            self._append(tables.tasks, (number, task, record.submission, *self._inline(number, whole, b"")))

    def _append(self, table: Table, row: tuple[Any, ...]) -> None:
        width = len(row)
        while row[width - 1] is None:
            width -= 1
        self._appended[table][width].extend(row[:width])

    def _add_results(self, record: AddResults) -> None:
        inline, references = (self._appended[tables.results][width] for width in (_INLINE_RESULT, _INLINE_RESULT + 1))
        for result in record.results:
            number = self._numbers.get(result.session) or self._number(result.session)
            output: bytes | bytearray | None = result.output
            payload = None
            if output is not None and len(output) > tables.INLINE_BYTES:
                output, payload = self._inline(number, result.output, None)
            elif output is not None:
                output = bytearray(output)
            values = inline if payload is None else references
            values += (
                number,
                result.task,
                result.sequence,
                _STATE_TEXT[result.state],
                result.code,
                output,
                _storable(result.message),
                result.executor,
                result.started_at,
                result.ended_at,
            )
            if payload is not None:
                values.append(payload)

    def _inline(self, session: int, data: bytes | None, empty: bytes | None) -> tuple[bytes | None, int | None]:
        """Return a payload for its row, or `empty` and the id of the payload in `payloads`."""
        if data is None or len(data) <= tables.INLINE_BYTES:
            return data, None
        if self._last_payload is None:
            found = self._connection.execute(select(func.max(tables.payloads.c.id))).scalar()
            self._last_payload = found or 0
        self._last_payload += 1
        self._append(tables.payloads, (self._last_payload, session, data))
        return empty, self._last_payload

    def _add_claims(self, record: AddClaims) -> None:
        number = self._number(record.session)
        if len(record.tasks) != len(record.claims):
            raise LookupError(f"{len(record.tasks)} tasks are claimed with {len(record.claims)} claims")
        rows = zip(repeat(number), record.tasks, record.claims, repeat(record.executor), repeat(record.at))
        self._appended[tables.claims][_CLAIM].extend(chain.from_iterable(rows))

    def _add_event(self, record: AddEvent) -> None:
        event = record.event
        data = msgspec.json.encode(event.data).decode()
        row = (event.number, event.at, event.kind, event.session, event.code, _storable(event.message), data)
        self._append(tables.events, row)

    def _put_attempts(self, record: PutAttempts) -> None:
        key = (self._number(record.session), record.task)
        self._attempts[key] = (record.losses, record.errors)

    def _put_session(self, record: PutSession) -> None:
        session = record.session
        light = replace(session, spec=replace(session.spec, common_data=None))
        value = msgspec.json.encode(light).decode()
        self._numbers[session.id] = session.number
        self._named[tables.sessions][session.id] = (session.id, session.number, value, session.spec.common_data)

    def _put_account(self, record: PutHistory | PutStay | PutCapacity) -> None:
        table, row = account_row(record)
        self._named[table][row[0]] = row

    def _drop_expired(self, record: DropExpired) -> None:
        self.flush()
        drop_expired(self._connection, record.expiry)
        self.dropped_sessions = True

    def _drop(self, record: Drop) -> None:
        self._named[_NAMED[record.kind].table][record.key] = None

    def _drop_session(self, record: DropSession) -> None:
        self.flush()
        run = self._connection.execute
        newest = select(func.max(tables.events.c.number)).scalar_subquery()
        last = func.max(tables.store.c.last_event, func.coalesce(newest, 0))
        run(update(tables.store).values(last_event=last))
        run(delete(tables.events).where(tables.events.c.session == record.session))
        run(delete(tables.waits).where(tables.waits.c.session == record.session))
        number = self._find(record.session)
        if number is None:
            return
        hide_session(self._connection, number)
        del self._numbers[record.session]
        self._room = delete_rows(self._connection, self._room)
        self.dropped_sessions = True

    def _number(self, session: str) -> int:
        number = self._find(session)
        if number is None:
            raise LookupError(f"session {session} is not stored")
        return number

    def _find(self, session: str) -> int | None:
        number = self._numbers.get(session)
        if number is None:
            query = select(tables.sessions.c.number).where(tables.sessions.c.id == session)
            number = self._connection.execute(query).scalar()
            if number is not None:
                self._numbers[session] = number
        return number

    _ADDERS: ClassVar[dict[type, Callable[[Batch, Any], None]]] = {
        AddTasks: _add_tasks,
        AddResults: _add_results,
        AddClaims: _add_claims,
        AddEvent: _add_event,
        PutAttempts: _put_attempts,
        PutSession: _put_session,
        PutHistory: _put_account,
        PutStay: _put_account,
        PutCapacity: _put_account,
        DropExpired: _drop_expired,
        DropSession: _drop_session,
        Drop: _drop,
    }


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which databases refuse: a worker's message must not stop the store."""
    return text if text.isascii() else text.encode(errors="replace").decode()
