"""The profiles of cards that come with Ullage. An operator's own table overrides them."""

from __future__ import annotations

from importlib.resources import files

from ullage.model.profile import Profiles
from ullage.model.profile_table import load_profiles

_TABLES = ("nvidia.toml", "ascend.toml")

SHIPPED = Profiles(
    tuple(
        profile
        for table in _TABLES
        for profile in load_profiles((files(__name__) / table).read_text(encoding="utf-8")).entries
    )
)
"""The default profiles of a fleet."""
