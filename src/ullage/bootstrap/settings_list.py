"""All settings of a server with their values and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ullage.bootstrap.settings import Settings, read_settings, read_tables
from ullage.bootstrap.settings_check import check_here
from ullage.bootstrap.settings_sources import SettingLeaf, from_environment, leaves
from ullage.wire.setting import SettingBody


def list_settings(
    path: Path | None, environment: Mapping[str, str], options: Mapping[str, object]
) -> list[SettingBody]:
    """Return the settings of a server that starts now with this file.

    `options` are those of the command line, by the path of the setting: `server.port`.

    Raises:
        InvalidRequest: the file or a variable is wrong.

    """
    check_here(read_settings(path, environment), environment)  # refuses what is wrong
    file, variables = read_tables(path), from_environment(Settings, environment)

    def body(leaf: SettingLeaf) -> SettingBody:
        name = ".".join(leaf.path)
        sources = [
            ("command line", options.get(name)),
            (leaf.variable, leaf.value_in(variables)),
            (str(path), leaf.value_in(file)),
        ]
        source, value = next(
            ((source, value) for source, value in sources if value is not None), ("default", leaf.default)
        )
        return SettingBody(
            name=name,
            value=msgspec.to_builtins(value),
            source=source,
            default=leaf.default,
            variable=leaf.variable,
        )

    return [body(leaf) for leaf in leaves(Settings)]
