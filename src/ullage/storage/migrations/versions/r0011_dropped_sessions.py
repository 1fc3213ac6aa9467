"""Rows of `sessions` whose names begin with a slash are deleted in steps, which older versions would not understand."""

from __future__ import annotations

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: no table is other than before."""
