"""Read the file of a vendor: TOML, checked whole, with errors that name file, field, value and fix.

`[defaults]` is merged into each `[[family]]`, and `{word}` in any text stands for the word of the family.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import did_you_mean
from ullage.wire.vendors.family import Family, VendorFile
from ullage.wire.vendors.values import VALUES

Table = Mapping[str, Any]

_AT = re.compile(r"(?P<said>.*?)(?: - at `\$(?P<at>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_EXPECTED = re.compile(r"Expected `(?P<kind>.*?)`(?:, got `.*`)?(?P<more>.*)", re.DOTALL)
_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_BRACES = re.compile(r"\{([^{}]*)\}")


def load_vendor(text: str, file: str) -> VendorFile:
    """Return the vendor that a file describes.

    Raises:
        InvalidRequest: the file is no TOML, or a value in it is wrong; file, field, value and fix are named.

    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{file}: not a table in TOML: {error}", field=file) from None
    defaults = table.pop("defaults", {})
    families = table.get("family", [])
    if not isinstance(defaults, dict):
        raise invalid(f"{file}: defaults", defaults, "write a table [defaults]")
    if isinstance(families, list):
        table["family"] = [_complete(defaults, each, table) if isinstance(each, dict) else each for each in families]
    vendor: VendorFile = _convert(table, VendorFile, file)
    for at, family in enumerate(vendor.family):
        _check_values(family, f"{file}: family[{at}]")
    return vendor


def make_family(defaults: Table, own: Table, where: str) -> Family:
    """Return one family from the defaults of its vendor and its own fields.

    Raises:
        InvalidRequest: as `load_vendor`.

    """
    family: Family = _convert(_complete(defaults, own, {}), Family, where)
    _check_values(family, where)
    return family


def _complete(defaults: Table, own: Table, vendor: Table) -> dict[str, Any]:
    merged = merge(defaults, own)
    merged.setdefault("vendor", vendor.get("vendor", ""))
    word = merged.get("word")
    return _with_word(merged, word) if isinstance(word, str) else merged


def merge(one: Table, other: Table) -> dict[str, Any]:
    """Return two tables as one; of two values the second counts, and tables are merged."""
    found = dict(one)
    for key, value in other.items():
        there = found.get(key)
        found[key] = merge(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return found


def _with_word(value: Any, word: str) -> Any:
    match value:
        case str():
            return value.replace("{word}", word)
        case dict():
            return {_with_word(key, word): _with_word(each, word) for key, each in value.items()}
        case list():
            return [_with_word(each, word) for each in value]
    return value


def _convert(table: Table, kind: Any, file: str) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), table, msgspec.inspect.type_info(kind), file) from None


def _explained(said: str, table: Table, kind: Any, file: str) -> InvalidRequest:
    """Return the error of a table in the common form: file and field, value, and fix."""
    match = _AT.fullmatch(said)
    text, at = (match["said"], match["at"] or "") if match else (said, "")
    value: Any = table
    for step in _STEP.finditer(at):
        if step["any"]:
            value = next((each for each in value.values() if not isinstance(each, str)), value)
        else:
            value = value[step["key"]] if step["key"] else value[int(step["index"])]
        kind = _inside(kind, step["key"])
    field = at.removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(text):
        key = unknown["key"]
        fix = "there is no such field here; leave it out or mend its name"
        return invalid(_path(file, field, key), value[key], fix)
    if missing := _MISSING.fullmatch(text):
        return invalid(_path(file, field, missing["key"]), None, "it is missing; write it down")
    return invalid(_path(file, field), value, _choices(kind) or _fix(text))


def _inside(kind: Any, key: str | None) -> Any:
    """Return the type of a field, or of the values of a list or table."""
    kinds = getattr(kind, "types", (kind,))
    for each in kinds:
        for field in getattr(each, "fields", ()):
            if field.encode_name == key:
                return field.type
    inner = (getattr(each, name, None) for each in kinds for name in ("item_type", "value_type"))
    return next((each for each in inner if each is not None), kind)


def _choices(kind: Any) -> str:
    """Return which values there are, if a type is a choice among some; "" if it is not."""
    values = getattr(kind, "values", ()) or getattr(kind, "cls", ())
    named = [str(each) for each in values] if isinstance(kind, _CHOICES) else []
    return f"choose one of {', '.join(filter(None, named))}" if named else ""


_CHOICES = msgspec.inspect.LiteralType | msgspec.inspect.EnumType


def _path(file: str, *fields: str) -> str:
    return f"{file}: {'.'.join(filter(None, fields))}".removesuffix(": ")


def _fix(text: str) -> str:
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        return text[:1].lower() + text[1:]
    kinds = " or ".join(_TYPES.get(kind.strip(), kind.strip()) for kind in expected["kind"].split("|"))
    return f"{kinds}{expected['more']} is needed"


def _check_values(family: Family, where: str) -> None:
    """Refuse the name of a value in braces that nobody computes.

    Raises:
        InvalidRequest: there is one.

    """
    for section, texts, known in (
        ("results.extra", family.results.extra, frozenset(VALUES)),
        ("webhook.env", family.webhook.env, WEBHOOK_VALUES),
        ("webhook.annotations", family.webhook.annotations, WEBHOOK_VALUES),
        ("register", {"uuid": family.register.uuid}, frozenset({"node", "index"})),
    ):
        for key, text in texts.items():
            for name in _BRACES.findall(text):
                if name not in known:
                    fix = f"{did_you_mean(name, sorted(known))}The values are {', '.join(sorted(known))}"
                    raise invalid(f"{where}.{section}.{key}", text, f"nobody computes {name}. {fix}")


WEBHOOK_VALUES = frozenset({"container", "core_policy", "priority", "several"})
"""The values of what the webhook writes."""


# --- the files of the package ---


@cache
def shipped_texts() -> tuple[tuple[str, str], ...]:
    """Return the name and text of each file of the package, by name."""
    folder = files(__package__)
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".toml"))
    return tuple((name, (folder / name).read_text(encoding="utf-8")) for name in names)


@cache
def shipped() -> tuple[VendorFile, ...]:
    """Return the vendors of the package."""
    found = tuple(load_vendor(text, name) for name, text in shipped_texts())
    check_apart(found)
    return found


def family_of_word(vendor: str, word: str) -> Family:
    """Return a family of a vendor by the defaults of its file, for a word that the file does not have."""
    for name, text in shipped_texts():
        table = tomllib.loads(text)
        if table.get("vendor") == vendor:
            return make_family(table.get("defaults", {}), {"word": word, "vendor": vendor}, name)
    raise InvalidRequest(f"vendor {vendor}: no file describes it", field="vendor")


def check_apart(vendors: Iterable[VendorFile]) -> None:
    """Refuse families with a name or a resource of another one: a request would not say whose cards it means.

    Raises:
        InvalidRequest: there are such.

    """
    names: dict[str, str] = {}
    for family in families_of(vendors):
        for field, name in _claimed(family):
            whose = names.setdefault(name, family.name)
            if whose != family.name:
                raise invalid(f"{family.name}: {field}", name, f"{whose} has it too; keep one")


def _claimed(family: Family) -> Iterator[tuple[str, str]]:
    yield "name", f"the name {family.name}"
    yield "resources.count", family.resources.count
    for name in family.amounts:
        yield "resources", name
    yield "results.allocated", family.results.allocated


def families_of(vendors: Iterable[VendorFile]) -> tuple[Family, ...]:
    """Return the families of all vendors."""
    return tuple(family for vendor in vendors for family in vendor.family)
