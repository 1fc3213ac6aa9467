"""Pages of stored results, tasks and events."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy import Connection, ScalarSelect, and_, func, select

from ullage.model.error import invalid
from ullage.model.event import Event
from ullage.model.quantity import MAX_INT64
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import EndedTask, Page, TaskView
from ullage.storage import tables

PAGE_BYTES = 32 * 1024 * 1024
"""Bytes of outputs after which a page of results ends."""

_sessions, _tasks, _results = tables.sessions, tables.tasks, tables.results
_claims, _events = tables.claims, tables.events
_submissions, _attempts = tables.submissions, tables.attempts
_DATA = dict[str, str | int | float | None]
_LATEST_CLAIM = (
    select(func.max(_claims.c.claim))
    .where(_claims.c.session == _tasks.c.session, _claims.c.task == _tasks.c.task)
    .correlate(_tasks)
    .scalar_subquery()
)
_TASK_VIEWS = (
    select(
        _tasks.c.task,
        _submissions.c.created_at,
        _claims.c.executor,
        _claims.c.at,
        func.coalesce(_attempts.c.losses, 0),
        func.coalesce(_attempts.c.errors, 0),
        _results.c.sequence,
        _results.c.state,
        _results.c.code,
        _results.c.message,
        _results.c.executor,
        _results.c.started_at,
        _results.c.ended_at,
    )
    .join(_submissions, tables.of_submission)
    .outerjoin(_attempts, tables.of_task(_attempts))
    .outerjoin(_claims, and_(tables.of_task(_claims), _claims.c.claim == _LATEST_CLAIM))
    .outerjoin(_results, tables.of_task(_results))
    .order_by(_tasks.c.task)
)


def check_page(page: Page) -> None:
    """Refuse an invalid page.

    Raises:
        InvalidRequest: `after` below 0, `limit` below 1, either above 2^63-1 or not a whole number.

    """
    for field, value, least in (("after", page.after, 0), ("limit", page.limit, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_INT64:
            raise invalid(field, value, f"a whole number from {least} to {MAX_INT64} is needed")


def read_results(connection: Connection, session: str, page: Page) -> list[TaskResult]:
    """Return results of a session by sequence; none if the session is not stored.

    Reading stops after the result that brings the outputs above `PAGE_BYTES`.
    """
    query = (
        select(
            _results.c.task,
            _results.c.sequence,
            _results.c.state,
            _results.c.code,
            tables.payload_of(_results, "output"),
            _results.c.message,
            _results.c.executor,
            _results.c.started_at,
            _results.c.ended_at,
        )
        .where(_results.c.session == _number(session), _results.c.sequence > page.after)
        .order_by(_results.c.sequence)
        .limit(page.limit)
    )
    found: list[TaskResult] = []
    size = 0
    with connection.execute(query) as rows:
        for task, sequence, state, *rest in rows:
            result = TaskResult(session, task, sequence, TaskState(state), *rest)
            found.append(result)
            size += len(result.output or b"")
            if size > PAGE_BYTES:
                break
    return found


def read_tasks(connection: Connection, session: str, page: Page) -> list[TaskView]:
    """Return the tasks of a session by id, each with its latest hand-out (the highest claim), if any."""
    query = _TASK_VIEWS.where(_tasks.c.session == _number(session), _tasks.c.task > page.after).limit(page.limit)
    views = []
    for task, created_at, executor, claimed_at, losses, errors, sequence, state, *ending in connection.execute(query):
        result = None
        if state is not None:
            code, message, by, started_at, ended_at = ending
            result = TaskResult(
                session,
                task,
                sequence,
                TaskState(state),
                code=code,
                output=None,
                message=message,
                executor=by,
                started_at=started_at,
                ended_at=ended_at,
            )
        attempts = {"losses": losses, "errors": errors}
        views.append(TaskView(session, task, created_at, result, executor=executor, claimed_at=claimed_at, **attempts))
    return views


def read_ended(connection: Connection, session: str, states: Collection[TaskState], page: Page) -> list[EndedTask]:
    """Return tasks that ended in these states by id, with their inputs, as `Store.ended`."""
    query = (
        select(_tasks.c.task, _tasks.c.submission, tables.payload_of(_tasks, "input"))
        .join(_results, tables.of_task(_results))
        .where(_tasks.c.session == _number(session), _tasks.c.task > page.after)
        .where(_results.c.state.in_([state.value for state in states]))
        .order_by(_tasks.c.task)
        .limit(page.limit)
    )
    found: list[EndedTask] = []
    size = 0
    with connection.execute(query) as rows:
        for task, submission, data in rows:
            found.append(EndedTask(task, submission, data))
            size += len(data)
            if size > PAGE_BYTES:
                break
    return found


def read_shared(connection: Connection, session: str, submission: int) -> list[bytes | None]:
    """Return the shared data of a submission, if it is stored."""
    query = select(tables.payload_of(_submissions, "shared")).where(
        _submissions.c.session == _number(session), _submissions.c.submission == submission
    )
    return list(connection.execute(query).scalars())


def read_events(connection: Connection, page: Page, session: str | None) -> list[Event]:
    """Return events by number, of one session or of all."""
    query = select(_events).where(_events.c.number > page.after).order_by(_events.c.number).limit(page.limit)
    if session is not None:
        query = query.where(_events.c.session == session)
    return [_event(*row) for row in connection.execute(query)]


def read_evictions(connection: Connection, page: Page, session: str | None) -> list[Event]:
    """Return the evictions of a session, newest first, through their own index."""
    query = select(_events).where(tables.IS_EVICTION, _events.c.session == session, _events.c.number > page.after)
    rows = connection.execute(query.order_by(_events.c.number.desc()).limit(page.limit))
    return [_event(*row) for row in rows]


def _event(number: int, at: float, kind: str, of: str | None, code: int | None, message: str, data: str) -> Event:
    return Event(number, at, kind, of, code=code, message=message, data=msgspec.json.decode(data, type=_DATA))


def _number(session: str) -> ScalarSelect[int]:
    return select(_sessions.c.number).where(_sessions.c.id == session).scalar_subquery()
