"""`ullage settings`: the settings of a server that starts now, and where each comes from."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from ullage.cli.exits import caution
from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.client.endpoint import ServerPlace, looked_after, own_place
from ullage.client.local import INSTALL, missing_packages
from ullage.model.error import Unavailable
from ullage.wire.setting import SettingBody

_OPTIONS = {"host": "server.host", "port": "server.port", "gpus": "node.gpus"}
"""Options of `ullage up`, and the settings that they override."""


def _shown(value: object) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)


SETTINGS = Listing(
    kind="setting",
    columns=(
        Column("NAME", lambda s: s.name),
        Column("VALUE", lambda s: _shown(s.value)),
        Column("SOURCE", lambda s: s.source),
        Column("DEFAULT", lambda s: _shown(s.default), wide=True),
        Column("VARIABLE", lambda s: s.variable, wide=True),
    ),
    body=SettingBody,
    name=lambda setting: setting.name,
)


def configure_settings(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The settings of a local server that starts now. The command line comes before the environment, the "
        "environment before the file, the file before the defaults. `-o wide` shows the variable of each."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ullage.toml in its home)")
    parser.add_argument("--all", action="store_true", help="also those that have their defaults")
    SETTINGS.configure(parser, settings_of)


def show_settings(arguments: argparse.Namespace) -> int:
    """Print the settings that `ullage up` would have with its options. Return the exit code."""
    parser = argparse.ArgumentParser()
    SETTINGS.add_options(parser)
    listed = parser.parse_args([])
    arguments = argparse.Namespace(**{**vars(listed), **vars(arguments), "all": True})
    return SETTINGS.show(arguments, lambda given: _settings_of(given, own_place()))


def settings_of(arguments: argparse.Namespace) -> list[SettingBody]:
    """Return the settings of the server that this user looks after, else of one of this user's own.

    Those that a running server has not read are warned of.
    """
    place = looked_after() or own_place()
    found = _settings_of(arguments, place)
    if arguments.config is None:
        from ullage.bootstrap.settings_changes import RESTART, unread_settings  # noqa: PLC0415  # as below

        if unread := unread_settings(place):
            caution([f"the running server does not have these values yet: {', '.join(unread)}; {RESTART}"])
    return found


def _settings_of(arguments: argparse.Namespace, place: ServerPlace) -> list[SettingBody]:
    """Return the settings of a server there with the options of a command line.

    Raises:
        Unavailable: the packages of the server are not installed, which know the settings.

    """
    if missing := missing_packages():
        raise Unavailable(f"{', '.join(missing)} not installed: {INSTALL}", code="not-installed")
    from ullage.bootstrap.settings_list import list_settings  # noqa: PLC0415  # packages of the server

    given = {setting: getattr(arguments, option, None) for option, setting in _OPTIONS.items()}
    found = list_settings(arguments.config or place.settings, os.environ, given)
    return [setting for setting in found if arguments.all or setting.source != "default"]
