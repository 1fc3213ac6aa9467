"""Bodies from the values of the service: each field is the attribute of the same name, unless the caller states it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

Body = TypeVar("Body", bound=msgspec.Struct)

_ABSENT = object()


def body_of(kind: type[Body], *values: object, **stated: Any) -> Body:
    """Return a body of type `kind`; a field that is not `stated` is the attribute of the first value that has it.

    Values inside of values become the bodies that the field asks for in the same way.

    Raises:
        msgspec.ValidationError: a required field is in none of the values, or an attribute is of another type.

    """
    found = {}
    for name, encoded in _fields(kind):
        content = stated.get(name, _ABSENT)
        for value in values if content is _ABSENT else ():
            content = getattr(value, name, _ABSENT)
            if content is not _ABSENT:
                break
        if content is not _ABSENT:
            found[encoded] = content
    return msgspec.convert(found, kind, from_attributes=True)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the names of the fields of a body, each with its name in JSON."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
