"""Profiles of cards from a table in TOML, read whole or not at all.

    [[model]]
    name = "NVIDIA A30"              # as the driver names the card
    aliases = ["A30"]                # further names
    vendor = "NVIDIA"                # or Alibaba-PPU, Ascend
    max_partitions = 4               # on one card, default 7
    max_placement_slots = 4          # Ascend has max_isolation_groups, default 4
    total_extended_resources = {}    # such as { AICORE = 8 }

    [[model.templates]]
    name = "1g.6gb"
    id = "14"                        # a second name, may be left out
    memory_gigabytes = 6             # of 2^30 bytes, decimals allowed
    compute_percent = 25             # of the card; digits below a millionth are cut off
    max_partition = 4                # of this template on one card
    placement_limit = [0, 1, 2, 3]   # slots it may start at, in the order to try
    placement_offset = 1             # slots it takes
    extended_resources = {}

A template of Ascend has no placement but `isolation_group_sharing` (`shared` or `exclusive`, the
default) and, if shared, `max_partitions_per_isolation_group` (default 2).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from ullage.model.error import InvalidRequest, invalid
from ullage.model.profile import Profile, Profiles, Vendor, vendor_named
from ullage.model.quantity import MAX_INT64, is_whole
from ullage.model.template import Template

_GIGABYTE = 1 << 30
_PPM_PER_PERCENT = 10_000
_PER_SHARED_GROUP = 2


def load_profiles(text: str) -> Profiles:
    """Return the profiles of a table in TOML.

    Raises:
        InvalidRequest: an entry is wrong; model, template, field, value and fix are named.

    """
    try:
        table = _Entry(tomllib.loads(text, parse_float=Decimal))
    except (ValueError, RecursionError) as error:  # not TOML, a number too long, or nested too deeply
        raise InvalidRequest(f"profiles: not a table in TOML: {error}", field="profiles") from None
    models = table.entries("model")
    table.end()
    profiles = tuple(_profile(entry, position) for position, entry in enumerate(models))
    names: dict[str, str] = {}
    for profile in profiles:
        for key in sorted(profile.keys):
            if key in names:
                raise invalid("name", profile.name, f"{names[key]!r} has the name {key!r} too; keep one")
            names[key] = profile.name
    return Profiles(profiles)


def _profile(entry: _Entry, position: int) -> Profile:
    with _within(f"model {entry.title or position}"):
        name, vendor = entry.text("name"), _vendor(entry.text("vendor"))
        aliases = entry.texts("aliases")
        most = entry.integer("max_partitions", 7)
        slots = entry.integer("max_placement_slots") if vendor.by_slots else 0
        groups = 4 if vendor.by_slots else entry.integer("max_isolation_groups", 4)
        extended = entry.amounts("total_extended_resources")
        rows = entry.entries("templates")
        entry.end()
        templates = tuple(_template(row, index, vendor) for index, row in enumerate(rows))
        return Profile(
            name, vendor, templates, aliases, max_partitions=most, slots=slots, groups=groups, extended=extended
        )


def _vendor(name: str) -> Vendor:
    vendor = vendor_named(name)
    if vendor is None:
        raise invalid("vendor", name, f"partitions can be placed on cards of {', '.join(Vendor)}")
    return vendor


def _template(entry: _Entry, position: int, vendor: Vendor) -> Template:
    with _within(f"template {entry.title or position}"):
        template = Template(
            name=entry.text("name"),
            id=entry.text("id", ""),
            memory_bytes=_bytes(entry.number("memory_gigabytes")),
            compute_ppm=int(entry.number("compute_percent") * _PPM_PER_PERCENT),
            max_partitions=entry.integer("max_partition"),
            starts=entry.integers("placement_limit") if vendor.by_slots else (),
            size=entry.integer("placement_offset") if vendor.by_slots else 0,
            extended=entry.amounts("extended_resources"),
            per_group=1 if vendor.by_slots else _per_group(entry),
        )
        entry.end()
        return template


def _bytes(gigabytes: Decimal) -> int:
    exact = gigabytes * _GIGABYTE
    if exact != int(exact):
        raise invalid("memory_gigabytes", str(gigabytes), "it is not a whole number of bytes; 1 is 2^30 bytes")
    return int(exact)


def _per_group(entry: _Entry) -> int:
    sharing = entry.text("isolation_group_sharing", "exclusive")
    if sharing == "shared":
        return entry.integer("max_partitions_per_isolation_group", _PER_SHARED_GROUP)
    if sharing != "exclusive":
        raise invalid("isolation_group_sharing", sharing, "choose shared or exclusive")
    return 1


class _Entry:
    """Fields of one TOML table, each taken once; `end` refuses fields that were not taken."""

    def __init__(self, values: dict[str, object]) -> None:
        self._left = dict(values)
        name = values.get("name")
        self.title = repr(name) if isinstance(name, str) else ""

    def end(self) -> None:
        for key, value in self._left.items():
            raise invalid(key, value, "there is no such field here; leave it out or correct its name")

    def _take(self, key: str, default: object) -> object:
        value = self._left.pop(key, default)
        if value is None:
            raise invalid(key, None, "it is missing; add it")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise invalid(key, value, "write a text in quotes")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(_Entry({key: value}).text(key) for value in self._list(key))

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._take(key, default)
        if not is_whole(value):
            raise invalid(key, value, "write a plain whole number such as 2")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        return tuple(_Entry({key: value}).integer(key) for value in self._list(key))

    def number(self, key: str) -> Decimal:
        """Return an exact decimal above 0."""
        value = self._take(key, None)
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise invalid(key, value, "write a plain number such as 2 or 0.5")
        number = Decimal(value)
        if not number.is_finite() or not 0 < number <= MAX_INT64:
            raise invalid(key, str(value), "write a plain number above 0")
        return number

    def amounts(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return a table of whole numbers by name, in the order of the names; empty if left out."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise invalid(key, value, "write a table such as { AICORE = 8 }")
        entry = _Entry(value)
        return tuple((name, entry.integer(name)) for name in sorted(value))

    def entries(self, key: str) -> tuple[_Entry, ...]:
        values = self._list(key)
        tables = [value for value in values if isinstance(value, dict)]
        if len(tables) != len(values):
            raise invalid(key, values, "write a list of tables")
        return tuple(_Entry(value) for value in tables)

    def _list(self, key: str) -> list[object]:
        value = self._take(key, [])
        if not isinstance(value, list):
            raise invalid(key, value, "write a list in square brackets")
        return value


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Prefix errors with their place."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error.message}", field=error.field) from None
