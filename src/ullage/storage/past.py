"""The rows of the history: written by number, read as pages and as sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, Table, and_, delete, func, literal, or_, select, text

from ullage.model.history import (
    CapacitySpan,
    Expiry,
    HistoryQuery,
    Offered,
    PastSession,
    SessionHistory,
    Stay,
    UsageQuery,
    UsageReport,
    Used,
)
from ullage.model.past_state import DIMENSIONS, PastState
from ullage.model.quantity import MAX_INT64
from ullage.service.store_port import PutCapacity, PutHistory, PutStay
from ullage.storage import tables

_history, _stays, _capacity = tables.history, tables.stays, tables.capacity


def account_row(record: PutHistory | PutStay | PutCapacity) -> tuple[Table, tuple[Any, ...]]:
    """Return the table and the row of a record of the history."""
    match record:
        case PutHistory(history=history):
            return _history, astuple(replace(history, state=history.state.value))  # type: ignore[arg-type]  # its text
        case PutStay(stay=stay):
            return _stays, _row_of(replace(stay, gpus=" ".join(stay.gpus)))  # type: ignore[arg-type]  # one text
        case PutCapacity(span=span):
            return _capacity, _row_of(span)


def _row_of(value: Any) -> tuple[Any, ...]:
    """Return the fields of a value; SQLite has no integers of more than 64 bits."""
    return astuple(replace(value, memory_bytes=min(value.memory_bytes, MAX_INT64)))


def last_number(connection: Connection, table: Table) -> int:
    """Return the highest number in a table of the history; 0 if it is empty."""
    found: int | None = connection.execute(select(func.max(table.c.number))).scalar()
    return found or 0


def read_capacity(connection: Connection) -> CapacitySpan | None:
    """Return the newest span of the capacity; None if it was never known."""
    row = connection.execute(select(_capacity).order_by(_capacity.c.number.desc()).limit(1)).mappings().one_or_none()
    return None if row is None else CapacitySpan(**row)


def read_open_history(connection: Connection) -> tuple[SessionHistory, ...]:
    """Return the sessions that have not ended."""
    return tuple(map(_history_of, _rows(connection, select(_history).where(_history.c.ended_at.is_(None)))))


def read_open_stays(connection: Connection) -> tuple[Stay, ...]:
    """Return the stays that have not ended."""
    return tuple(map(_stay_of, _rows(connection, select(_stays).where(_stays.c.ended_at.is_(None)))))


def read_history(connection: Connection, query: HistoryQuery, now: float) -> list[PastSession]:
    """Return a page of sessions, each with the sums of its stays."""
    page = _page(select(_history), _history, query)
    if query.since is not None:
        page = page.where(or_(_history.c.ended_at.is_(None), _history.c.ended_at >= query.since))
    if query.until is not None:
        page = page.where(_history.c.created_at < query.until)
    if query.states:
        page = page.where(_history.c.state.in_([state.value for state in query.states]))
    rows = page.subquery()
    lasted = func.coalesce(_stays.c.ended_at, literal(now)) - _stays.c.started_at
    sums = (
        func.coalesce(func.sum(lasted), 0.0).label("ran_s"),
        func.coalesce(func.sum(lasted * _stays.c.cores), 0.0).label("core_s"),
        func.coalesce(func.sum(lasted * _stays.c.cards), 0.0).label("card_s"),
        func.max(_stays.c.memory_peak_bytes).label("memory_peak_bytes"),
    )
    whole = select(rows, *sums).outerjoin(_stays, _stays.c.session == rows.c.number)
    found = _rows(connection, whole.group_by(rows.c.number).order_by(rows.c.number))
    return [PastSession(_history_of(row), **{name: row[name] for name in _SUMS}) for row in found]


_SUMS = ("ran_s", "core_s", "card_s", "memory_peak_bytes")


def read_stays(connection: Connection, query: HistoryQuery) -> list[Stay]:
    """Return a page of stays."""
    page = _page(select(_stays), _stays, query)
    if query.since is not None:
        page = page.where(or_(_stays.c.ended_at.is_(None), _stays.c.ended_at >= query.since))
    if query.until is not None:
        page = page.where(_stays.c.started_at < query.until)
    return [_stay_of(row) for row in _rows(connection, page)]


def _page(rows: Select[Any], table: Table, query: HistoryQuery) -> Select[Any]:
    order = table.c.number.desc() if query.newest else table.c.number
    page = rows.where(table.c.number > query.after).order_by(order).limit(query.limit)
    wanted = {"owner": query.owner, "queue": query.queue}
    return page.where(and_(True, *(table.c[name] == value for name, value in wanted.items() if value is not None)))


def _rows(connection: Connection, query: Select[Any]) -> Iterator[RowMapping]:
    return connection.execute(query).mappings()


def _history_of(row: RowMapping) -> SessionHistory:
    values = {column.name: row[column.name] for column in _history.columns}
    return SessionHistory(**values | {"state": PastState(row["state"])})


def _stay_of(row: RowMapping) -> Stay:
    values = {column.name: row[column.name] for column in _stays.columns}
    return Stay(**values | {"gpus": tuple(row["gpus"].split())})


# --- retention ---


def has_expired(connection: Connection, expiry: Expiry) -> bool:
    """Return whether a row has expired."""
    return any(
        connection.execute(_expired(connection, table, expiry).limit(1)).first() is not None
        for table in tables.ACCOUNTS
    )


def drop_expired(connection: Connection, expiry: Expiry) -> None:
    """Delete the oldest expired rows of each table."""
    for table in tables.ACCOUNTS:
        numbers = _expired(connection, table, expiry).order_by(table.c.number).limit(expiry.limit)
        connection.execute(delete(table).where(table.c.number.in_(numbers)))


def _expired(connection: Connection, table: Table, expiry: Expiry) -> Select[Any]:
    """Return the query for the numbers of expired rows. The newest row stays: its number must not be used again."""
    over = [table.c.ended_at < expiry.before] if expiry.before is not None else []
    if expiry.keep is not None:
        newest = select(table.c.number).order_by(table.c.number.desc()).offset(expiry.keep).limit(1)
        over.append(table.c.number <= (connection.execute(newest).scalar() or 0))
    last = select(func.max(table.c.number)).scalar_subquery()
    return select(table.c.number).where(table.c.ended_at.is_not(None), table.c.number < last, or_(False, *over))


# --- usage ---


class _Spans(NamedTuple):
    """Rows with a beginning and an end, each an SQL expression, and the sums that are asked of them.

    `sums` are expressions over `lasted`, the seconds of a row in a step, and `starts`: whether the row begins in it.
    """

    table: str
    begin: str
    end: str
    sums: tuple[str, ...]
    owned: bool = True


_AMOUNTS = ("sum(lasted * cores)", "sum(lasted * cards)", "sum(lasted * memory_bytes)")
_HELD = _Spans("stays", "started_at", "coalesce(ended_at, :now)", _AMOUNTS)
# The server that asks runs: its span, the newest one, goes on.
_GOES_ON = "CASE number WHEN (SELECT max(number) FROM capacity) THEN max(ended_at, :now) ELSE ended_at END"
_OFFERED = _Spans("capacity", "started_at", _GOES_ON, _AMOUNTS, owned=False)
_WAITED = _Spans("history", "asked_at", "max(asked_at, coalesce(started_at, ended_at, :now))", ("sum(lasted)",))
_OPENED = _Spans("history", "created_at", "created_at", ("sum(starts)",))

_STEPS = """
WITH RECURSIVE clipped AS (
    SELECT *, {begin} AS begin_, max({begin}, :since) AS low, min({end}, :until) AS high
    FROM {table} WHERE {begin} < :until AND {end} >= :since AND {filter}
), parts AS (
    SELECT *, CAST((low - :since) / :step AS INTEGER) AS bucket,
           min(CAST((high - :since) / :step AS INTEGER), :last) AS final FROM clipped
    UNION ALL SELECT {columns}, begin_, low, high, bucket + 1, final FROM parts WHERE bucket < final
), lasting AS (
    SELECT *, max(0.0, min(high, :since + (bucket + 1) * :step) - max(low, :since + bucket * :step)) AS lasted,
           CAST((begin_ - :since) / :step AS INTEGER) = bucket AND begin_ >= :since AS starts FROM parts
)
SELECT {keys}, bucket, {sums} FROM lasting GROUP BY {keys}, bucket
"""


def read_usage(connection: Connection, query: UsageQuery, now: float) -> UsageReport:
    """Return the sums by step and group. SQLite cuts the spans at the steps."""
    found: dict[_Group, dict[str, Any]] = defaultdict(dict)
    for spans, names in (
        (_HELD, ("core_s", "card_s", "memory_byte_s")),
        (_WAITED, ("waited_s",)),
        (_OPENED, ("sessions",)),
    ):
        for group, sums in _sums(connection, spans, query, now):
            found[group].update((name, amount) for name, amount in zip(names, sums, strict=True) if amount)
    shown, left_out = _largest(found, query.limit)
    used: list[Used] = []
    rest: dict[int, Counter[str]] = defaultdict(Counter)
    for group, amounts in sorted(found.items(), key=_group):
        if amounts and group._replace(bucket=0) in shown:
            used.append(Used(group.owner, group.queue, group.application, at=_at(query, group.bucket), **amounts))
        elif amounts:
            rest[group.bucket].update(amounts)
    offered = [
        Offered(_at(query, group.bucket), *sums)
        for group, sums in sorted(_sums(connection, _OFFERED, query, now), key=_group)
    ]
    others = (Used("", "", "", at=_at(query, bucket), **amounts) for bucket, amounts in sorted(rest.items()))
    return UsageReport(tuple(used), tuple(offered), tuple(others), left_out)


def _at(query: UsageQuery, bucket: int) -> float:
    return query.since + bucket * query.step


class _Group(NamedTuple):
    bucket: int
    owner: str
    queue: str
    application: str


def _largest(found: Mapping[_Group, Mapping[str, float]], most: int) -> tuple[set[_Group], int]:
    """Return the groups that used most in all steps, and how many others there are."""
    totals: dict[_Group, Counter[str]] = defaultdict(Counter)
    for group, amounts in found.items():
        if amounts:
            totals[group._replace(bucket=0)].update(amounts)
    if len(totals) <= most:
        return set(totals), 0
    order = sorted(totals, key=lambda group: (*(-totals[group][name] for name in _BY_SIZE), group))
    return set(order[:most]), len(totals) - most


_BY_SIZE = ("card_s", "core_s", "memory_byte_s", "waited_s", "sessions")
"""What makes a group larger than another: the first that differs."""


def _group(row: tuple[_Group, Any]) -> _Group:
    group, _ = row
    return group


def _sums(
    connection: Connection, spans: _Spans, query: UsageQuery, now: float
) -> Iterator[tuple[_Group, tuple[float, ...]]]:
    """Yield the sums of the spans in each step, by group."""
    wanted = {name: getattr(query, name) for name in ("owner", "queue") if getattr(query, name) is not None}
    keys = [name if spans.owned and name in query.by else "''" for name in DIMENSIONS]
    filters = [f"{name} = :{name}" for name in wanted] if spans.owned else []
    columns = [f'"{column.name}"' for column in tables.METADATA.tables[spans.table].columns]
    statement = _STEPS.format(
        table=spans.table,
        begin=spans.begin,
        end=spans.end,
        filter=" AND ".join(filters) or "true",
        columns=", ".join(columns),
        keys=", ".join(keys),
        sums=", ".join(spans.sums),
    )
    last = max(0, -int(-(query.until - query.since) // query.step) - 1)
    values = {"since": query.since, "until": query.until, "step": query.step, "last": last, "now": now, **wanted}
    for owner, queue, application, bucket, *sums in connection.execute(text(statement), values):
        yield _Group(bucket, owner, queue, application), tuple(sums)
