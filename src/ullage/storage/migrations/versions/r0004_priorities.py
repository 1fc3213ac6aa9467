"""Priorities of requests are signed 32-bit numbers: stored numbers beyond become the largest."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_LEAST, _MOST = -(2**31), 2**31 - 1


def upgrade() -> None:
    """Limit the priority of every stored claim."""
    for name, path in (("allocations", "$.claim.priority"), ("nominations", "$.request.claim.priority")):
        rows = sa.table(name, sa.column("value"))
        priority = sa.func.json_extract(rows.c.value, path)
        for beyond, bound in ((priority > _MOST, _MOST), (priority < _LEAST, _LEAST)):
            op.execute(rows.update().where(beyond).values(value=sa.func.json_set(rows.c.value, path, bound)))
