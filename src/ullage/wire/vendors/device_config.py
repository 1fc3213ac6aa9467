"""HAMi's device configuration (`device-config.yaml` of its chart): names, units, defaults and slices of families.

The file of each vendor says which of its keys change which field. What nothing here follows is returned by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ullage.model.error import InvalidRequest, invalid
from ullage.wire.vendors.family import ConfigKeys, Family
from ullage.wire.vendors.load import family_of_word, make_family, merge

Table = Mapping[str, Any]
_SUPERPOD_STEP = 2


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """The families as a configuration has them, and a sentence for each of its keys that is not followed."""

    families: tuple[Family, ...]
    ignored: tuple[str, ...] = ()


def read_device_config(config: object, families: Sequence[Family], file: str = "device-config.yaml") -> DeviceConfig:
    """Return the families with what a configuration, parsed from YAML, says of them.

    A family that the configuration names and no file has is made from the defaults of its vendor's file.

    Raises:
        InvalidRequest: it is no table of sections, or a value is wrong; file, field, value and fix are named.

    """
    if not isinstance(config, Mapping):
        raise invalid(file, config, "write the sections of HAMi's device configuration, such as nvidia")
    found: dict[str, Family] = {family.name: family for family in families}
    ignored: list[str] = []
    sections = {family.config.section.partition(".")[0] for family in families}
    for name, section in config.items():
        if name not in sections:
            ignored.append(f"{name}: there is no such vendor")
            continue
        about = [family for family in families if family.config.section.partition(".")[0] == name]
        first, *_ = about
        if first.config.by:
            found |= _listed(section, about, f"{file}: {name}", ignored)
        else:
            found |= _of_section(section, about, f"{file}: {name}", ignored)
    return DeviceConfig(tuple(found.values()), tuple(ignored))


def _of_section(section: object, about: Sequence[Family], where: str, ignored: list[str]) -> dict[str, Family]:
    """Return the families of a section, which has the keys of all of them."""
    table = _table(section, where)
    known = {key for family in about for key in family.config.keys}
    ignored += _unread(table, known, [key for family in about for key in family.config.plugin], where)
    return {family.name: _changed(family, table, where) for family in about}


def _listed(section: object, about: Sequence[Family], where: str, ignored: list[str]) -> dict[str, Family]:
    """Return the families of a section that is a list, an entry for each, which its word names."""
    first, *_ = about
    _, _, inner = first.config.section.partition(".")
    entries = section
    if inner:
        table = _table(section, where)
        ignored += _unread(table, {inner}, (), where)
        entries, where = table.get(inner, []), f"{where}.{inner}"
    if not isinstance(entries, list):
        raise invalid(where, entries, "write a list, one entry for each kind of card")
    found = {}
    for at, entry in enumerate(entries):
        here = f"{where}[{at}]"
        table = _table(entry, here)
        word = table.get(first.config.by)
        if not isinstance(word, str) or not word:
            raise invalid(f"{here}.{first.config.by}", word, "name the kind of card, as annotations have it")
        family = next((each for each in about if each.word == word), None) or family_of_word(first.vendor, word)
        known = {first.config.by, *family.config.keys}
        ignored += _unread(table, known, family.config.plugin, here)
        found[family.name] = _changed(family, table, here)
    return found


def _unread(table: Table, known: set[str], plugin: Sequence[str], where: str) -> Iterator[str]:
    """Yield a sentence for each key that is not followed here."""
    _, _, section = where.partition(": ")
    for key in table:
        if key in plugin:
            yield f"{section}.{key}: its device plugin follows it, and the register of a node has the result"
        elif key not in known:
            yield f"{section}.{key}: it is not followed"


def _changed(family: Family, table: Table, where: str) -> Family:
    """Return a family with the values of its keys."""
    changes: dict[str, Any] = {}
    for key, field in family.config.keys.items():
        value = table.get(key)
        if value is None or value == "":
            continue
        names = field.split(".")
        inner: Any = _value(key, value, where)
        for name in reversed(names):
            inner = {name: inner}
        changes = merge(changes, inner)
    if not changes:
        return family
    try:
        return make_family(merge(_plain(family), changes), {}, where)
    except InvalidRequest as error:
        raise InvalidRequest(_by_key(error.message, family.config), field=error.field) from None


def _value(key: str, value: Any, where: str) -> Any:
    if key == "superPod":
        if not isinstance(value, bool):
            raise invalid(f"{where}.{key}", value, "write true or false")
        return _SUPERPOD_STEP if value else 1
    if key == "templates" and isinstance(value, list):
        return [_template(each, f"{where}.{key}[{at}]") for at, each in enumerate(value)]
    if key == "memoryFactor" and value == 0:
        return 1
    return value


_OF_TEMPLATE = {"name": "name", "memory": "memory_mib", "aiCore": "cores", "aiCPU": "cpus"}


def _template(value: object, where: str) -> dict[str, Any]:
    table = _table(value, where)
    for key in table:
        if key not in _OF_TEMPLATE:
            raise invalid(f"{where}.{key}", table[key], f"the fields are {', '.join(_OF_TEMPLATE)}")
    return {_OF_TEMPLATE[key]: each for key, each in table.items()}


def _by_key(message: str, config: ConfigKeys) -> str:
    """Return a message about a field of a family as one about the key of the configuration."""
    for key, field in config.keys.items():
        message = message.replace(f": {field}: ", f".{key}: ").replace(f".{field}: ", f".{key}: ")
    return message


def _plain(family: Family) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(family)
    return found


def _table(value: object, where: str) -> Table:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise invalid(where, value, "write a table")
    return value
