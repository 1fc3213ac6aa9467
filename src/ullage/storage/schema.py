"""Migration of a database to the newest revision.

Alembic is imported only for a migration, so that the start with a current file does not take that time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect

REVISION_TABLE = "alembic_version"
_MIGRATIONS = Path(__file__).with_name("migrations")


@cache
def known_revisions() -> tuple[str, ...]:
    """Return the revisions that this version can read or migrate from, in order.

    The file of revision 0001 is `r0001_*.py`.
    """
    return tuple(sorted(path.name[1:5] for path in (_MIGRATIONS / "versions").glob("r[0-9]*_*.py")))


def migrate(connection: Connection) -> None:
    """Apply the missing migrations, inside the caller's transaction."""
    if _revision(connection) == known_revisions()[-1]:
        return
    from alembic import command  # noqa: PLC0415 - only migrations need it
    from alembic.config import Config  # noqa: PLC0415 - only migrations need it

    config = Config()
    # A percent sign in the path of the installation would start an interpolation.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    """Return the revision of a database; None if it is new."""
    if not inspect(connection).has_table(REVISION_TABLE):
        return None
    found: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {REVISION_TABLE}").scalar()  # noqa: S608 - a constant
    return found
