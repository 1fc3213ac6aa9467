"""Allocations of requests for cards, and quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    for table, key in (("allocations", "id"), ("quotas", "name")):
        op.create_table(
            table,
            sa.Column(key, sa.Text, primary_key=True),
            sa.Column("value", sa.Text, nullable=False),
            sqlite_with_rowid=False,
        )
