"""The schema of the database.

Other tables refer to a session by its small `number`, so that a row per task stays short. A task is finished if and
only if it has a row in `results`; the primary key there ensures that a task ends once. Values that no query reads
(requirements, whose amounts may exceed 64 bits, labels, limits) are one JSON value. Times are seconds since the epoch.

Trees of keys have small rows only, because a search reads every row that it compares. Inputs, outputs and shared data
above `INLINE_BYTES` are in `payloads`, and `payload` has their id.

This is the newest revision. `migrations/` upgrades older files; migrations are only added.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    case,
    select,
    text,
)

METADATA = MetaData()

INLINE_BYTES = 4096
"""The largest payload that is stored in the row of its task, result or submission."""

store = Table(
    "store",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    # Deleting a session deletes its events, but their numbers are not reused.
    Column("last_event", Integer, nullable=False),
    # The number of the last group commit; the witness of the database counts the same.
    Column("commits", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("id = 1", name="one_row"),
)


def _named(name: str, key: str, *, with_rowid: bool = False) -> Table:
    """Return a table of JSON values by their key."""
    return Table(
        name,
        METADATA,
        Column(key, Text, primary_key=True),
        Column("value", Text, nullable=False),
        sqlite_with_rowid=with_rowid,
    )


applications = _named("applications", "name")
queues = _named("queues", "name")
nodes = _named("nodes", "name")
executors = _named("executors", "executor")
allocations = _named("allocations", "id")
nominations = _named("nominations", "uid")
gangs = _named("gangs", "key", with_rowid=True)
waits = _named("waits", "session", with_rowid=True)
quotas = _named("quotas", "name")
access_tokens = _named("access_tokens", "id", with_rowid=True)
notices = _named("notices", "id", with_rowid=True)
NAMED = (applications, queues, nodes, executors, allocations, nominations, gangs, waits, quotas, access_tokens, notices)

sessions = Table(
    "sessions",
    METADATA,
    Column("id", Text, nullable=False, unique=True),
    Column("number", Integer, primary_key=True),
    Column("value", Text, nullable=False),
    # Not in the value: it may have many megabytes, which JSON would store as base64.
    Column("common_data", LargeBinary),
)

submissions = Table(
    "submissions",
    METADATA,
    Column("session", Integer, ForeignKey("sessions.number"), primary_key=True),
    Column("submission", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("first", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("shared", LargeBinary),
    Column("payload", Integer),
    sqlite_with_rowid=False,
)
Index(
    "submission_keys",
    submissions.c.session,
    submissions.c.key,
    unique=True,
    sqlite_where=text("key <> ''"),
)

tasks = Table(
    "tasks",
    METADATA,
    Column("session", Integer, primary_key=True),
    Column("task", Integer, primary_key=True),
    Column("submission", Integer, nullable=False),
    Column("input", LargeBinary, nullable=False),
    Column("payload", Integer),
    ForeignKeyConstraint(["session", "submission"], ["submissions.session", "submissions.submission"]),
    sqlite_with_rowid=False,
)

claims = Table(
    "claims",
    METADATA,
    Column("session", Integer, primary_key=True),
    Column("task", Integer, primary_key=True),
    Column("claim", Integer, primary_key=True),
    Column("executor", Text, nullable=False),
    Column("at", Float, nullable=False),
    ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    METADATA,
    Column("session", Integer, primary_key=True),
    Column("task", Integer, primary_key=True),
    Column("losses", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
    sqlite_with_rowid=False,
)

results = Table(
    "results",
    METADATA,
    Column("session", Integer, primary_key=True),
    Column("task", Integer, primary_key=True),
    Column("sequence", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("code", Integer, nullable=False),
    Column("output", LargeBinary),
    Column("message", Text, nullable=False),
    Column("executor", Text),
    Column("started_at", Float),
    Column("ended_at", Float, nullable=False),
    Column("payload", Integer),
    ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
    sqlite_with_rowid=False,
)
Index("result_order", results.c.session, results.c.sequence, unique=True)

payloads = Table(
    "payloads",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("session", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
Index("session_payloads", payloads.c.session)

events = Table(
    "events",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False),
    # The name, not the number: an event may be older or live longer than its session.
    Column("session", Text),
    Column("code", Integer),
    Column("message", Text, nullable=False),
    Column("data", Text, nullable=False),
)
Index("session_events", events.c.session, events.c.number)
# As text: SQLite uses a partial index only for a query with literally the same condition.
IS_EVICTION = text("kind = 'executor.evicted'")
Index("evictions", events.c.session, events.c.number, sqlite_where=IS_EVICTION)

# The history refers to nothing, because it outlives the sessions. Its amounts are columns, for queries by hand.
history = Table(
    "history",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("session", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("application", Text, nullable=False),
    Column("resreq", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("asked_at", Float),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("state", Text, nullable=False),
    Column("succeed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("cancelled", Integer, nullable=False),
)
Index("history_ends", history.c.ended_at)

stays = Table(
    "stays",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("session", Integer),
    Column("owner", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("application", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("gpus", Text, nullable=False),
    Column("cards", Float, nullable=False),
    Column("cores", Float, nullable=False),
    Column("memory_bytes", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("memory_peak_bytes", Integer),
)
Index("session_stays", stays.c.session)
Index("stay_ends", stays.c.ended_at)

capacity = Table(
    "capacity",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("cards", Float, nullable=False),
    Column("cores", Float, nullable=False),
    Column("memory_bytes", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float, nullable=False),
)

ACCOUNTS = (history, stays, capacity)
"""The tables of the history, whose rows are replaced by number."""

# The tables of a task in the order in which foreign keys permit deletion.
TASK_TABLES = (claims, attempts, results, tasks)

of_submission = and_(submissions.c.session == tasks.c.session, submissions.c.submission == tasks.c.submission)
"""Joins a task with its submission."""


def of_task(table: Table) -> ColumnElement[bool]:
    """Return the condition that joins a task with its rows in a table keyed by session and task."""
    return and_(table.c.session == tasks.c.session, table.c.task == tasks.c.task)


def payload_of(table: Table, column: str) -> ColumnElement[Any]:
    """Return a payload from the row or from `payloads`."""
    payload = select(payloads.c.data).where(payloads.c.id == table.c.payload).scalar_subquery()
    return case((table.c.payload.is_not(None), payload), else_=table.c[column])
