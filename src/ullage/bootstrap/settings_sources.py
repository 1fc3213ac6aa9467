"""Where settings come from: the command line before the environment, before the file, before the defaults.

The variable of a setting is `ULLAGE_` and its path: `ULLAGE_POLICY_RECLAIM_GRACE_S` is `reclaim_grace_s` under
`[policy]`. Lists and tables are written as in TOML; a list of texts also as `a,b`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from ullage.model.error import invalid
from ullage.model.nearest import one_of
from ullage.model.variables import PREFIX
from ullage.wire.nan import refuse_nan
from ullage.wire.unknown_field import with_known_fields

_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""The beginning of a value that a kubelet gives to `ULLAGE_SERVER_PORT` in a pod, for a service `ullage-server`."""

_PATHS = ("profiles",)
"""Settings that are paths relative to the settings file; in the environment they are relative to this directory."""


class SettingLeaf(NamedTuple):
    """A setting: its path in the file, its type, and its default as the file would have it."""

    path: tuple[str, ...]
    kind: Any
    default: object

    @property
    def variable(self) -> str:
        return PREFIX + "_".join(self.path).upper()

    def value_in(self, tree: Any) -> object:
        """Return the value in nested tables; None if it is not there."""
        for key in self.path:
            if not isinstance(tree, dict) or key not in tree:
                return None
            tree = tree[key]
        return tree


def leaves(kind: type[msgspec.Struct], above: tuple[str, ...] = ()) -> Iterator[SettingLeaf]:
    """Yield every setting of a section and of those below it."""
    for field in msgspec.structs.fields(kind):
        path = (*above, field.encode_name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from leaves(field.type, path)
        else:
            yield SettingLeaf(path, field.type, _default(field))


def from_environment(kind: type[msgspec.Struct], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that variables have, as nested tables like those of a file.

    Raises:
        InvalidRequest: a value has another type; the variable is named.

    """
    found: dict[str, Any] = {}
    for leaf in leaves(kind):
        text = environment.get(leaf.variable)
        if text is None or _SERVICE_LINK.match(text):
            continue
        *sections, key = leaf.path
        table = found
        for section in sections:
            table = table.setdefault(section, {})
        table[key] = _value(leaf, text)
    return found


def merged(file: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables in which the values of `over` replace those of the file."""
    both = dict(file)
    for key, value in over.items():
        below = both.get(key)
        both[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def _value(leaf: SettingLeaf, text: str) -> object:
    value = _read(leaf.kind, text)
    refuse_nan(value)
    try:
        msgspec.convert(value, leaf.kind)
    except msgspec.ValidationError as error:
        wrong = re.sub(r" - at `[^`]*`", "", with_known_fields(error, leaf.kind))
        if get_origin(leaf.kind) is Literal:
            wrong = one_of(text, get_args(leaf.kind))
        raise invalid(leaf.variable, text, plain_types(wrong)) from None
    if leaf.path in {(name,) for name in _PATHS} and isinstance(value, list):
        return [os.path.abspath(name) for name in value]  # noqa: PTH100  # links stay
    return value


def _read(kind: Any, text: str) -> object:
    """Return the value of a text: itself where the setting is a text, else as TOML."""
    kinds = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
    if get_origin(kind) is Literal or (str in kinds and not kinds & {int, float, bool}):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return [word.strip() for word in text.split(",")] if list[str] in kinds else text


_TYPES = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
}


def plain_types(text: str) -> str:
    """Return an error about a document with the types as TOML calls them."""
    return re.sub(r"(?:Expected|got) `[^`]*`", _plain_types, text)


def _plain_types(match: re.Match[str]) -> str:
    verb, _, names = match.group().partition(" ")
    types = [_TYPES.get(name, name) for name in names.strip("`").split(" | ") if name != "null"]
    return f"{verb} {' or '.join(types)}"


def _default(field: msgspec.structs.FieldInfo) -> object:
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return None if value in (msgspec.UNSET, msgspec.NODEFAULT) else msgspec.to_builtins(value)
