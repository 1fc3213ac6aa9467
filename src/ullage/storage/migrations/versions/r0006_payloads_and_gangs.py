"""Large payloads get a table of their own, gangs are stored, and the store counts its commits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_INLINE_BYTES = 4096
_COLUMNS = (("tasks", "input"), ("results", "output"), ("submissions", "shared"))


def upgrade() -> None:
    """Create the tables, and move large payloads."""
    op.create_table(
        "payloads",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("session", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("session_payloads", "payloads", ["session"])
    op.create_table(
        "gangs",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.add_column("store", sa.Column("commits", sa.Integer, nullable=False, server_default=sa.text("0")))
    for table, column in _COLUMNS:
        op.add_column(table, sa.Column("payload", sa.Integer))
        _move_large(table, column)


def _move_large(table: str, column: str) -> None:
    """Move large values to `payloads`, one row at a time."""
    key = "submission" if table == "submissions" else "task"
    rows = sa.table(table, *(sa.column(name) for name in ("session", key, column, "payload")))
    payloads = sa.table("payloads", sa.column("id"), sa.column("session"), sa.column("data"))
    run = op.get_bind().execute
    # The keys are read first: an update moves a row in the tree that is being read.
    large = sa.select(rows.c.session, rows.c[key]).where(sa.func.length(rows.c[column]) > _INLINE_BYTES)
    last = run(sa.select(sa.func.coalesce(sa.func.max(payloads.c.id), 0))).scalar_one()
    for number, (session, of) in enumerate(run(large).all(), last + 1):
        this = sa.and_(rows.c.session == session, rows.c[key] == of)
        source = sa.select(sa.literal(number), rows.c.session, rows.c[column]).where(this)
        run(payloads.insert().from_select(["id", "session", "data"], source))
        empty = None if column != "input" else b""
        run(rows.update().where(this).values({column: empty, "payload": number}))
