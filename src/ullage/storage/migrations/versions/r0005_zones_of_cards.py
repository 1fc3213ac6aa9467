"""A card may be in several zones: the zone of each card of an allocation becomes a list."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_MAX_ZONES = 64


def upgrade() -> None:
    """Rewrite the cards of every stored allocation."""
    rows = sa.table("allocations", sa.column("id"), sa.column("value"))
    for uid, value in op.get_bind().execute(sa.select(rows.c.id, rows.c.value)).all():
        held = json.loads(value)
        for card in held.get("cards", ()):
            zone = card.pop("numa_zone", None)
            if isinstance(zone, int) and 0 <= zone < _MAX_ZONES:
                card["zones"] = [zone]
        op.execute(rows.update().where(rows.c.id == uid).values(value=json.dumps(held)))
