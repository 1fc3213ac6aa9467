"""One of a fixed set of words, read from text."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from ullage.model.error import invalid
from ullage.model.nearest import one_of

Choice = TypeVar("Choice", bound=StrEnum)


def parse_choice(kind: type[Choice], value: object, field: str) -> Choice:
    """Return the member of `kind` with that value."""
    if value not in [*kind]:
        raise invalid(field, value, one_of(value, kind))
    return kind(str(value))
