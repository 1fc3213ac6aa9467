"""Looking into a pod: a plain mapping, whose errors name the path of the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec.yaml

from ullage.model.error import InvalidRequest, invalid

Document = Mapping[str, Any]

_MOST_VALUES = 100_000
_MOST_EVENTS = 10_000
_DEEPEST = 100


def parse_pod(raw: bytes | str) -> Document:
    """The pod that a body holds, JSON or YAML.

    Raises:
        InvalidRequest: it is neither, or no pod.

    """
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
    """Refuse YAML that is long, as reading it takes the server's time, or nested deeply.

    The reader follows nesting by recursion in C, which would end the process.
    """
    try:
        import yaml  # noqa: PLC0415 - PyYAML comes with a server, and clients import this package
    except ImportError:
        fix = "it is no JSON, and reading YAML needs PyYAML, which ullage[server] brings; send JSON"
        raise InvalidRequest(f"body: {fix}", field="body") from None
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _too_deep()
            if number > _MOST_EVENTS:
                raise InvalidRequest(f"body: it has more than {_MOST_EVENTS} values; send JSON", field="body")
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
        if seen > _MOST_VALUES:
            raise InvalidRequest(f"body: it has more than {_MOST_VALUES} values, aliases included", field="body")
        if isinstance(item, Mapping):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)


def mapping(value: object, path: str) -> Document:
    """The mapping at a path; an empty one if there is none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(path, value, "a mapping is needed")
    return value


def mappings(value: object, path: str) -> Iterator[tuple[str, Document]]:
    """Each mapping in the list at a path, with its own path; none if there is no list."""
    for position, item in enumerate(sequence(value, path)):
        here = f"{path}[{position}]"
        yield here, mapping(item, here)


def sequence(value: object, path: str) -> Sequence[Any]:
    """The list at a path; an empty one if there is none."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise invalid(path, value, "a list is needed")
    return value


def text(value: object) -> str:
    """A value as text; "" if there is none."""
    return "" if value is None else str(value)
