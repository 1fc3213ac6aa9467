"""The waits of sessions are stored, and an index finds the newest eviction of a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and the index."""
    op.create_table(
        "waits",
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    evictions = sa.text("kind = 'executor.evicted'")
    op.create_index("evictions", "events", ["session", "number"], sqlite_where=evictions)
