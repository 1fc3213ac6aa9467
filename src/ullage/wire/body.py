"""Bodies from the values of the service: each field is the attribute of the same name, unless the caller states it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Body = TypeVar("Body", bound=msgspec.Struct)


def body_of(kind: type[Body], *values: object, **stated: Any) -> Body:
    """Return a body of type `kind`; a field that is not `stated` is the attribute of the first value that has it.

    Values inside of values become the bodies that the field asks for in the same way.

    Raises:
        msgspec.ValidationError: a required field is in none of the values, or an attribute is of another type.

    """
    return msgspec.convert(_Fields(values, stated), kind, from_attributes=True)


class _Fields:
    """The stated fields and the attributes of several values as the attributes of one."""

    __slots__ = ("_stated", "_values")

    def __init__(self, values: tuple[object, ...], stated: dict[str, Any]) -> None:
        self._values, self._stated = values, stated

    def __getattr__(self, name: str) -> Any:
        if name in self._stated:
            return self._stated[name]
        for value in self._values:
            if hasattr(value, name):
                return getattr(value, name)
        raise AttributeError(name)
