"""A setting of a server, as `ullage settings` shows it."""

from __future__ import annotations

from typing import Any

from ullage.wire.schema import View


class SettingBody(View, frozen=True, kw_only=True):
    """A setting: its value, and its source: `command line`, a variable, a file, or `default`."""

    name: str
    value: Any
    source: str
    default: Any
    variable: str
