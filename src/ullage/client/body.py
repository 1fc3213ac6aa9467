"""Bodies of requests as JSON."""

from __future__ import annotations

import msgspec

from ullage.model.error import InvalidRequest, invalid


def encode_body(body: msgspec.Struct | None) -> bytes | None:
    """Return a body as JSON; None for None.

    Raises:
        InvalidRequest: JSON cannot represent the value of a field.

    """
    if body is None:
        return None
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise _unwritable(body, error) from error


def _unwritable(body: msgspec.Struct, error: Exception) -> InvalidRequest:
    for field in body.__struct_fields__:
        value = getattr(body, field)
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError):
            return invalid(field, value, f"a value of the type {type(value).__name__} cannot be sent")
    return InvalidRequest(f"the request cannot be sent: {error}")
