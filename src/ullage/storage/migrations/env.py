"""Alembic runs this: it applies migrations on the connection of `storage.schema`."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
