"""The first schema: applications, queues, nodes, executors, sessions, tasks, results, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


_NAMED = (("applications", "name"), ("queues", "name"), ("nodes", "name"), ("executors", "executor"))


def upgrade() -> None:
    """Create every table."""
    _create_store()
    _create_named()
    _create_sessions()
    _create_tasks()
    _create_task_history()
    _create_results()
    _create_events()


def _create_store() -> None:
    store = op.create_table(
        "store",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("last_event", sa.Integer, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    op.execute(store.insert().values(id=1, epoch=0, last_event=0))


def _create_named() -> None:
    for table, key in _NAMED:
        op.create_table(
            table,
            sa.Column(key, sa.Text, primary_key=True),
            sa.Column("value", sa.Text, nullable=False),
            sqlite_with_rowid=False,
        )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("common_data", sa.LargeBinary),
    )


def _create_tasks() -> None:
    op.create_table(
        "submissions",
        sa.Column("session", sa.Integer, sa.ForeignKey("sessions.number"), primary_key=True),
        sa.Column("submission", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("shared", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "submission_keys", "submissions", ["session", "key"], unique=True, sqlite_where=sa.text("key <> ''")
    )
    op.create_table(
        "tasks",
        sa.Column("session", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True),
        sa.Column("submission", sa.Integer, nullable=False),
        sa.Column("input", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["session", "submission"], ["submissions.session", "submissions.submission"]),
        sqlite_with_rowid=False,
    )


def _create_task_history() -> None:
    op.create_table(
        "claims",
        sa.Column("session", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True),
        sa.Column("claim", sa.Integer, primary_key=True),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        sa.Column("session", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("errors", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
        sqlite_with_rowid=False,
    )


def _create_results() -> None:
    op.create_table(
        "results",
        sa.Column("session", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("output", sa.LargeBinary),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("executor", sa.Text),
        sa.Column("started_at", sa.Float),
        sa.Column("ended_at", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(["session", "task"], ["tasks.session", "tasks.task"]),
        sqlite_with_rowid=False,
    )
    op.create_index("result_order", "results", ["session", "sequence"], unique=True)


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("session", sa.Text),
        sa.Column("code", sa.Integer),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("session_events", "events", ["session", "number"])
