"""Bringing a database to the newest revision with the migrations shipped in this package."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

REVISION_TABLE = "alembic_version"


def known_revisions() -> frozenset[str]:
    """The revisions this version of the program can read or migrate from."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def migrate(connection: Connection) -> None:
    """Apply the missing migrations, inside the caller's transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    # A percent sign in the path of the installation would start an interpolation.
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
