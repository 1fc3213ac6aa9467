"""Messages in the binary form of protocol buffers, decoded with a table of their fields into plain mappings.

Source of the form: the encoding page of the protocol buffers documentation. Fields that a table lacks are skipped, so
messages of newer writers can be read. As in proto3 an omitted field is not in the mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ullage.model.error import InvalidRequest


class Scalar(Enum):
    """The type of a field that is not a message; whole numbers have 64 bits."""

    TEXT = "text"
    SIGNED = "signed"
    UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its name, its type, and whether it is a list."""

    name: str
    holds: Scalar | Mapping[int, Field]
    repeated: bool = False


Table = Mapping[int, Field]
"""Fields of a message by their numbers."""

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT = 10
_SIGN, _ROUND = 1 << 63, 1 << 64
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def decode(data: bytes, table: Table) -> dict[str, Any]:
    """Decode the message in `data`.

    Raises:
        InvalidRequest: it is malformed (`protobuf-malformed`).

    """
    found: dict[str, Any] = {}
    for number, form, value in _fields(data):
        field = table.get(number)
        if field is None:
            continue
        values = _values(field, form, value)
        if field.repeated:
            found.setdefault(field.name, []).extend(values)
        elif values:
            *_, found[field.name] = values
    return found


def _values(field: Field, form: int, value: int | bytes) -> list[Any]:
    """Return the values of one entry: one, or all of a packed list."""
    if isinstance(field.holds, Scalar) and field.holds is not Scalar.TEXT:
        if isinstance(value, int) and form == _VARINT:
            return [_number(value, field.holds)]
        if isinstance(value, bytes) and form == _BYTES:
            return [_number(each, field.holds) for each in _packed(value)]
    elif isinstance(value, bytes) and form == _BYTES:
        if not isinstance(field.holds, Scalar):
            return [decode(value, field.holds)]
        return [value.decode("utf-8", "replace")]
    raise _malformed(f"field {field.name} has another form than it is known for")


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, form and content of each field in order."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        form = key & 7
        value: int | bytes
        if form == _VARINT:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if form == _BYTES else (_FIXED.get(form), at)
            if size is None:
                raise _malformed(f"no field has form {form}")
            if at + size > len(data):
                raise _malformed("it ends in the middle of a field")
            value, at = data[at : at + size], at + size
        yield key >> 3, form, value


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, seven bits to a byte from the lowest on, and the position after it."""
    value = 0
    for place, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value % _ROUND, at + place + 1
    raise _malformed("a number does not end")


def _number(value: int, kind: Scalar) -> int:
    return value - _ROUND if kind is Scalar.SIGNED and value >= _SIGN else value


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"a message cannot be read: {why}", code="protobuf-malformed")
