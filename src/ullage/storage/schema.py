"""Creation of a database, and migration of an older one to the newest revision.

A new database gets the statements of `migrations/newest.sql`, in a small part of the time of all migrations. Alembic is
imported only for a migration. `python -m ullage.storage.schema` writes that file again after a change of the schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, StaticPool, create_engine

from ullage.storage.statements import driver_of

REVISION_TABLE = "alembic_version"
_MIGRATIONS = Path(__file__).with_name("migrations")
NEWEST = _MIGRATIONS / "newest.sql"
"""What a new database contains, as SQL."""


@cache
def known_revisions() -> tuple[str, ...]:
    """Return the revisions that this version can read or migrate from, in order.

    The file of revision 0001 is `r0001_*.py`.
    """
    return tuple(sorted(path.name[1:5] for path in (_MIGRATIONS / "versions").glob("r[0-9]*_*.py")))


def migrate(connection: Connection) -> None:
    """Create the tables of a new database, or apply the missing migrations, inside the caller's transaction."""
    driver = driver_of(connection)
    tables = {name for (name,) in driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        for statement in _statements(NEWEST.read_text()):
            driver.execute(statement)
        return
    if REVISION_TABLE in tables:
        revision = driver.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchone()  # noqa: S608 - a constant
        if revision == (known_revisions()[-1],):
            return
    apply_migrations(connection)


def apply_migrations(connection: Connection) -> None:
    """Apply the missing migrations, all of them to a new database."""
    from alembic import command  # noqa: PLC0415 - only migrations need it
    from alembic.config import Config  # noqa: PLC0415 - only migrations need it

    config = Config()
    # A percent sign in the path of the installation would start an interpolation.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def newest() -> str:
    """Return the SQL of a new database after all migrations."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        engine = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool)
        with engine.begin() as connection:
            apply_migrations(connection)
        statements = [each for each in driver.iterdump() if each not in {"BEGIN TRANSACTION;", "COMMIT;"}]
    lines = (line.rstrip().replace("\t", "    ") for each in statements for line in each.splitlines())
    return "\n".join(filter(None, lines)) + "\n"


def _statements(script: str) -> Iterator[str]:
    """Return the statements of a script whose statements end at the end of a line."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


if __name__ == "__main__":
    NEWEST.write_text(newest())
