"""An unknown field of a document, with the known one that was probably meant."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ullage.model.nearest import did_you_mean

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_PATH = re.compile(r"- at `\$([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def with_known_fields(error: msgspec.ValidationError, kind: Any) -> str:
    """Return the text of an error about a document of this type; for an unknown field, with the likely one."""
    text = str(error)
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        return text
    place = _PATH.search(text)
    known = _fields_at(kind, place[1] if place else "")
    return f"{text}; {did_you_mean(unknown.group(1), known)}Known are {', '.join(known)}" if known else text


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the names of the fields at a path such as `.node.card[0]`."""
    from msgspec import inspect  # noqa: PLC0415 - only errors need it

    here = _structs(inspect.type_info(kind))
    for step in _STEP.finditer(path):
        here = [inner for each in here for inner in _structs(_within(each, step[1]))]
    return [field.encode_name for each in here if isinstance(each, inspect.StructType) for field in each.fields]


def _within(kind: Any, name: str | None) -> Any:
    """Return the type of a field, or of each item of a list or values of a mapping."""
    if name is not None:
        found = (field.type for field in getattr(kind, "fields", ()) if field.encode_name == name)
        return next(found, getattr(kind, "value_type", None))
    return getattr(kind, "item_type", getattr(kind, "value_type", None))


def _structs(kind: Any) -> list[Any]:
    """Return the types of a union, or the one type."""
    return [] if kind is None else list(getattr(kind, "types", (kind,)))
