"""What has changed in the settings file of a server since it started: it reads the file only then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ullage.bootstrap.announcement import announced
from ullage.bootstrap.settings import Settings, read_tables
from ullage.bootstrap.settings_sources import leaves
from ullage.client.endpoint import ServerPlace

RESTART = "restart the server: `ullage down` and `ullage up`, or `sudo systemctl restart ullage`"


def file_settings(path: Path | None) -> dict[str, Any]:
    """Return the settings that a file has, by their names, such as `history.days`.

    Raises:
        InvalidRequest: it cannot be read, or is no TOML.

    """
    file = read_tables(path)
    found = {".".join(leaf.path): leaf.value_in(file) for leaf in leaves(Settings)}
    return {name: msgspec.to_builtins(value) for name, value in found.items() if value is not None}


def changed_settings(path: Path | None, at_start: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that the file has, or has lost, since a server started with it.

    Raises:
        InvalidRequest: as `file_settings`.

    """
    now = file_settings(path)
    return sorted(name for name in {*now, *at_start} if now.get(name) != at_start.get(name))


def unread_settings(place: ServerPlace) -> list[str]:
    """Return the settings that changed in the file of a running server, and that it has not read; none if none runs.

    Raises:
        InvalidRequest: as `file_settings`.

    """
    server = announced(place.home)
    if server is None:
        return []
    named = server.options.get("config")
    return changed_settings(place.settings if named is None else Path(named), server.settings)
