"""Bodies of requests, decoded from JSON or MessagePack; an error names the field."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from ullage.model.error import InvalidRequest
from ullage.wire.unknown_field import with_known_fields

T = TypeVar("T")
_PATH = re.compile(r" - at `\$\.?(.*?)`")


def decode_body(raw: bytes, kind: type[T], *, packed: bool = False) -> T:
    """Return a body of type `kind`, from MessagePack if `packed`; an empty body is read as an empty object."""
    try:
        return msgspec.msgpack.decode(raw, type=kind) if packed else msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        found = _PATH.search(str(error))
        field = found.group(1) if found else "body"
        raise InvalidRequest(f"{field}: {_PATH.sub('', with_known_fields(error, kind))}", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"body: it cannot be decoded: {error}", field="body") from None
    except RecursionError:
        raise InvalidRequest("body: it is nested too deeply", field="body") from None


def decode_document(body: bytes, decoder: msgspec.json.Decoder[T], most: int) -> T:
    """Return a document of at most `most` bytes from the control plane of Kubernetes."""
    if len(body) > most:
        raise InvalidRequest(f"body: it has {len(body)} bytes; at most {most} are read", field="body")
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"body: it cannot be read: {error}", field="body") from None
    except RecursionError:
        raise InvalidRequest("body: it is nested too deeply", field="body") from None


ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
"""Decodes JSON of any shape."""
