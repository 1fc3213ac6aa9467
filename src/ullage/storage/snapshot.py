"""The stored state for a restart, read in one view of the database."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, and_, case, exists, func, or_, select

from ullage.model.allocation import Allocation
from ullage.model.application import Application
from ullage.model.identity import AccessToken
from ullage.model.nomination import Nomination
from ullage.model.notice import Notice
from ullage.model.queue import Queue
from ullage.model.session import SessionInfo
from ullage.model.task import TaskState
from ullage.service.store_port import (
    PutExecutor,
    PutGang,
    PutNode,
    PutQuota,
    PutWait,
    Snapshot,
    StoredSession,
    StoredSubmission,
    StoredTask,
)
from ullage.storage import tables
from ullage.storage.past import last_number, read_capacity, read_open_history, read_open_stays
from ullage.storage.purge import DROPPED, IS_DROPPED, last_dropped

T = TypeVar("T")

_STORED_STATES = tuple(state.value for state in TaskState if state is not TaskState.RUNNING)
_tasks, _results, _submissions, _attempts = tables.tasks, tables.results, tables.submissions, tables.attempts
_UNFINISHED = ~exists().where(tables.of_task(_results))


def read_snapshot(connection: Connection) -> Snapshot:
    """Return the stored state, without inputs, outputs and shared data of ended tasks.

    Raises:
        SQLAlchemyError, msgspec.MsgspecError, UllageError: the content is malformed.

    """
    row = connection.execute(select(tables.store.c.epoch, tables.store.c.last_event)).one()
    events = tables.events.c
    newest = connection.execute(select(events.number, events.at).order_by(events.number.desc()).limit(1)).one_or_none()
    capacity = read_capacity(connection)
    return Snapshot(
        epoch=row.epoch,
        applications=_values(connection, "applications", Application),
        queues=_values(connection, "queues", Queue),
        nodes=_values(connection, "nodes", PutNode),
        sessions=_read_sessions(connection),
        executors=_values(connection, "executors", PutExecutor),
        allocations=_values(connection, "allocations", Allocation),
        nominations=_values(connection, "nominations", Nomination),
        gangs=_values(connection, "gangs", PutGang),
        waits=_values(connection, "waits", PutWait),
        quotas=_values(connection, "quotas", PutQuota),
        notices=_values(connection, "notices", Notice),
        tokens=_values(connection, "access_tokens", AccessToken),
        last_event=max(row.last_event, newest.number if newest else 0),
        alive_at=max(newest.at if newest else 0.0, capacity.ended_at if capacity else 0.0),
        history=read_open_history(connection),
        stays=read_open_stays(connection),
        last_session=max(last_number(connection, tables.history), last_dropped(connection)),
        last_stay=last_number(connection, tables.stays),
        capacity=capacity,
    )


def _values(connection: Connection, table: str, kind: type[T]) -> tuple[T, ...]:
    source = tables.METADATA.tables[table]
    query = select(source.c.value).order_by(*source.primary_key)
    return tuple(msgspec.json.decode(value, type=kind) for value in connection.execute(query).scalars())


def _read_sessions(connection: Connection) -> tuple[StoredSession, ...]:
    dropped = connection.execute(DROPPED.limit(1)).scalar() is not None
    counts, last = _read_counts(connection, without_dropped=dropped)
    tasks = _read_tasks(connection, without_dropped=dropped)
    submissions = _read_submissions(connection, without_dropped=dropped)
    found = []
    source = tables.sessions
    for number, value, data in connection.execute(
        select(source.c.number, source.c.value, source.c.common_data).where(~IS_DROPPED).order_by(source.c.number)
    ):
        session = msgspec.json.decode(value, type=SessionInfo)
        pending = tasks.get(number, [])
        found.append(
            StoredSession(
                session=replace(session, spec=replace(session.spec, common_data=data)),
                counts=dict.fromkeys(_STORED_STATES, 0) | counts[number] | {TaskState.PENDING.value: len(pending)},
                last_sequence=last.get(number, 0),
                tasks=tuple(pending),
                submissions=tuple(submissions.get(number, ())),
            )
        )
    return tuple(found)


def _stored(table: Table, *, without_dropped: bool) -> list[ColumnElement[bool]]:
    """Return the condition for rows of sessions that are not dropped; none if there are no others."""
    return [table.c.session.not_in(DROPPED)] if without_dropped else []


def _read_counts(connection: Connection, *, without_dropped: bool) -> tuple[dict[int, dict[str, int]], dict[int, int]]:
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    last: dict[int, int] = {}
    query = (
        select(_results.c.session, _results.c.state, func.count(), func.max(_results.c.sequence))
        .where(*_stored(_results, without_dropped=without_dropped))
        .group_by(_results.c.session, _results.c.state)
    )
    for number, state, count, sequence in connection.execute(query):
        counts[number][state] = count
        last[number] = max(sequence, last.get(number, 0))
    return counts, last


def _read_tasks(connection: Connection, *, without_dropped: bool) -> dict[int, list[StoredTask]]:
    query = (
        select(
            _tasks.c.session,
            _tasks.c.task,
            _tasks.c.submission,
            tables.payload_of(_tasks, "input"),
            _submissions.c.created_at,
            func.coalesce(_attempts.c.losses, 0),
            func.coalesce(_attempts.c.errors, 0),
        )
        .join(_submissions, tables.of_submission)
        .outerjoin(_attempts, tables.of_task(_attempts))
        .where(_UNFINISHED, *_stored(_tasks, without_dropped=without_dropped))
        .order_by(_tasks.c.session, _tasks.c.task)
    )
    found: dict[int, list[StoredTask]] = defaultdict(list)
    for number, *fields in connection.execute(query):
        found[number].append(StoredTask(*fields))
    return found


def _read_submissions(connection: Connection, *, without_dropped: bool) -> dict[int, list[StoredSubmission]]:
    mine = and_(
        _tasks.c.session == _submissions.c.session,
        _tasks.c.task >= _submissions.c.first,
        _tasks.c.task < _submissions.c.first + _submissions.c.count,
    )
    stored = or_(_submissions.c.shared.is_not(None), _submissions.c.payload.is_not(None))
    needed = and_(stored, exists().where(mine, _UNFINISHED))
    query = (
        select(
            _submissions.c.session,
            _submissions.c.submission,
            _submissions.c.key,
            _submissions.c.first,
            _submissions.c["count"],
            case((needed, tables.payload_of(_submissions, "shared"))),
        )
        .where(*_stored(_submissions, without_dropped=without_dropped))
        .order_by(_submissions.c.session, _submissions.c.submission)
    )
    found: dict[int, list[StoredSubmission]] = defaultdict(list)
    for number, *fields in connection.execute(query):
        found[number].append(StoredSubmission(*fields))
    return found
