"""The module with the environment variables of settings, from the settings."""

from __future__ import annotations

from pathlib import Path

from ullage.bootstrap.settings import Settings
from ullage.bootstrap.settings_sources import leaves
from ullage.model import setting_variables

MODULE = Path(setting_variables.__file__)


def variables_text() -> str:
    """Return the text of the module: the command line knows the names without loading the settings."""
    lines = "".join(f'    "{leaf.variable}",\n' for leaf in leaves(Settings))
    head = (
        '"""The environment variables of the settings of a server. `make docs` writes this file from the settings."""'
    )
    future = "from __future__ import annotations"
    return f'{head}\n\n{future}\n\nOF_SETTINGS = (\n{lines})\n"""`ULLAGE_` and the path of each setting."""\n'


def write_variables() -> None:
    """Write the module."""
    MODULE.write_text(variables_text())
