"""The history: sessions, who held what, and what the nodes offered; with the sessions that are stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SESSIONS = """
INSERT INTO history
SELECT s.number, s.id, coalesce(json_extract(s.value, '$.spec.owner'), ''),
       coalesce(json_extract(s.value, '$.spec.queue'), ''), json_extract(s.value, '$.spec.application'), '',
       json_extract(s.value, '$.created_at'),
       (SELECT min(created_at) FROM submissions WHERE session = s.number),
       (SELECT min(at) FROM events WHERE session = s.id AND kind = 'executor.started'),
       json_extract(s.value, '$.closed_at'),
       CASE WHEN json_extract(s.value, '$.closed_at') IS NULL
            THEN CASE WHEN EXISTS (SELECT 1 FROM events WHERE session = s.id AND kind = 'executor.started')
                      THEN 'running' ELSE 'pending' END
            WHEN r.failed THEN 'failed' WHEN r.cancelled THEN 'cancelled' ELSE 'succeed' END,
       coalesce(r.succeed, 0), coalesce(r.failed, 0), coalesce(r.cancelled, 0)
FROM sessions s LEFT JOIN (
    SELECT session, sum(state = 'succeed') succeed, sum(state = 'failed') failed, sum(state = 'cancelled') cancelled
    FROM results GROUP BY session) r ON r.session = s.number
"""


def upgrade() -> None:
    """Create the tables, and enter the stored sessions."""
    op.create_table(
        "history",
        sa.Column("number", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("session", "owner", "queue", "application", "resreq")),
        sa.Column("created_at", sa.Float, nullable=False),
        *(sa.Column(name, sa.Float) for name in ("asked_at", "started_at", "ended_at")),
        sa.Column("state", sa.Text, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("succeed", "failed", "cancelled")),
    )
    op.create_index("history_ends", "history", ["ended_at"])
    op.create_table(
        "stays",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("session", sa.Integer),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("owner", "queue", "application", "node", "gpus")),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("cards", "cores")),
        sa.Column("memory_bytes", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("memory_peak_bytes", sa.Integer),
    )
    op.create_index("session_stays", "stays", ["session"])
    op.create_index("stay_ends", "stays", ["ended_at"])
    op.create_table(
        "capacity",
        sa.Column("number", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("cards", "cores")),
        sa.Column("memory_bytes", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("started_at", "ended_at")),
    )
    op.execute(_SESSIONS)
