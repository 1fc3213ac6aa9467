"""A pod as the body of a request: JSON or YAML, of limited size."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec.yaml

from ullage.model.error import InvalidRequest, invalid
from ullage.wire.document import Document

_MAX_VALUES = 100_000
_MAX_EVENTS = 10_000
_DEEPEST = 100


def parse_pod(raw: bytes | str) -> Document:
    """Return the pod in a body, JSON or YAML."""
    try:
        document = _decode(raw.encode() if isinstance(raw, str) else raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"body: it cannot be read: {error}", field="body") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(document, Mapping):
        raise invalid("body", document, "send a pod, as a mapping")
    if document.get("kind", "Pod") != "Pod":
        raise invalid("kind", document["kind"], "send a Pod")
    return document


def _decode(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        if raw.lstrip()[:1] in (b"{", b""):
            raise
    _check_events(raw)
    document = msgspec.yaml.decode(raw)
    _check_size(document)
    return document


def _check_events(raw: bytes) -> None:
    """Refuse YAML that is long, as it takes the server's time, or nested deeply.

    The YAML reader follows nesting by recursion in C, which would end the process.
    """
    try:
        import yaml  # noqa: PLC0415 - only servers have PyYAML, and clients import this package
    except ImportError:
        fix = "it is not JSON, and YAML needs PyYAML, which ullage[server] brings; send JSON"
        raise InvalidRequest(f"body: {fix}", field="body") from None
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _too_deep()
            if number > _MAX_EVENTS:
                raise InvalidRequest(f"body: it has more than {_MAX_EVENTS} values; send JSON", field="body")
    except yaml.YAMLError as error:
        raise InvalidRequest(f"body: it cannot be read: {error}", field="body") from None


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"body: it is nested more than {_DEEPEST} deep", field="body")


def _check_size(document: object) -> None:
    """Refuse a few lines of YAML whose aliases stand for millions of values, or for themselves."""
    left, seen = [document], 0
    while left:
        item = left.pop()
        seen += 1
        if seen > _MAX_VALUES:
            raise InvalidRequest(f"body: it has more than {_MAX_VALUES} values, aliases included", field="body")
        if isinstance(item, Mapping):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
