"""The tokens of users are stored, without their secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
