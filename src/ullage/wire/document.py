"""Access to untrusted documents: plain mappings and lists, with errors that name the path of the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ullage.model.error import invalid
from ullage.model.quantity import check_range

Document = Mapping[str, Any]


def mapping(value: object, path: str) -> Document:
    """Return the mapping at a path; an empty one if there is none."""
    if value is None:
        return {}
    if type(value) is not dict and not isinstance(value, Mapping):  # the check for `dict` is ten times as fast
        raise invalid(path, value, "a mapping is needed")
    return value


def section(document: Document, *names: str) -> Document:
    """Return the mapping under these names, such as `spec`, `devices`; an empty one if there is none."""
    for depth, name in enumerate(names, 1):
        value = document.get(name)
        document = value if type(value) is dict else mapping(value, ".".join(names[:depth]))
    return document


def mappings(value: object, path: str) -> Iterator[tuple[str, Document]]:
    """Yield each mapping in the list at a path, with its own path; none if there is no list."""
    for position, item in enumerate(sequence(value, path)):
        here = f"{path}[{position}]"
        yield here, item if type(item) is dict else mapping(item, here)


def sequence(value: object, path: str) -> Sequence[Any]:
    """Return the list at a path; an empty one if there is none."""
    if value is None:
        return ()
    if type(value) is not list and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise invalid(path, value, "a list is needed")
    return value


def present(document: object, key: str, path: str) -> Any:
    """Return the value of a key that the writer of a document always writes, even if it is null.

    Raises:
        InvalidRequest: there is no such key, so the meaning of the document is unknown.

    """
    if not isinstance(document, Mapping) or key not in document:
        raise invalid(path, document, f"{key} is always there; without it the form is not known")
    return document[key]


def named(value: object, path: str) -> str:
    """Return the name at a path."""
    if not isinstance(value, str) or not value:
        raise invalid(path, value, "a name is needed")
    return value


def text(value: object) -> str:
    """Return a value as text; "" if there is none."""
    return "" if value is None else str(value)


def whole(value: Any, path: str, most: int) -> int:
    """Return the whole number at a path, from 0 to `most`; 0 if there is none, because writers in Go omit zeros."""
    if value is None:
        return 0
    check_range(path, value, 0, most)
    return int(value)
