"""The annotations and labels of one pod under its domain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from ullage.model.choice import Choice, parse_choice
from ullage.model.error import InvalidAnnotation, InvalidRequest, invalid, invalid_annotation
from ullage.model.quantity import MAX_INT32, MAX_INT64, parse_count
from ullage.wire.document import Document, mapping, section, text
from ullage.wire.kubernetes_quantity import parse_quantity

DOMAIN = "ullage.io"
"""The domain of annotations and labels unless configured otherwise."""

T = TypeVar("T")


class Keys:
    """Annotations by their name without the domain. Every reader returns None for an absent annotation."""

    def __init__(self, pod: Document, domain: str) -> None:
        self._domain = domain
        self.metadata = section(pod, "metadata")
        self.labels = mapping(self.metadata.get("labels"), "metadata.labels")
        self._annotations = mapping(self.metadata.get("annotations"), "metadata.annotations")

    def key(self, name: str) -> str:
        return f"{self._domain}/{name}"

    def text(self, name: str, *, blank: bool = False) -> str | None:
        """Return the value without surrounding blanks, None if nothing is left; with `blank` return it unchanged."""
        value = self._annotations.get(self.key(name))
        if value is not None and not isinstance(value, str):
            raise invalid_annotation(self.key(name), value, "annotations are texts; put it in quotes")
        return value if blank or value is None else value.strip() or None

    def label(self, name: str) -> str:
        """Return the label of that name, or ""."""
        return text(self.labels.get(self.key(name)))

    def parse(self, name: str, read: Callable[[str, str], T]) -> T | None:
        """Return the result of `read` for the value and the key."""
        value = self.text(name)
        if value is None:
            return None
        with as_annotation():
            return read(value, self.key(name))

    def amount(self, name: str, *, units: int = 1, maximum: int = MAX_INT64) -> int | None:
        """Return a quantity. An empty one is an error, never 0."""
        value = self.text(name, blank=True)
        if value is None:
            return None
        with as_annotation():
            return parse_quantity(value, self.key(name), units=units, maximum=maximum)

    def choice(self, name: str, among: type[Choice]) -> Choice | None:
        return self.parse(name, lambda value, key: parse_choice(among, value, key))

    def count(self, name: str) -> int | None:
        return self.parse(name, lambda value, key: parse_count(value, key, MAX_INT32))

    def names(self, name: str) -> tuple[str, ...]:
        """Return different names, separated by commas or bars; a name may have blanks inside."""
        return self.parse(name, _names) or ()

    def flag(self, name: str) -> bool:
        """Return whether the value is `true`; false if there is none."""
        value = self.text(name)
        if value not in (None, "true", "false"):
            raise self.invalid(name, "write true or false")
        return value == "true"

    def json(self, name: str, kind: type[T], fix: str) -> T | None:
        """Return a value written as JSON."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return msgspec.json.decode(value, type=kind)
        except msgspec.MsgspecError as error:
            raise self.invalid(name, f"{fix} ({error})") from None
        except RecursionError:
            raise self.invalid(name, f"{fix} (it is nested too deeply)") from None

    def invalid(self, name: str, fix: str) -> InvalidAnnotation:
        """Return the error about a key."""
        return invalid_annotation(self.key(name), self.text(name), fix)

    def conflict(self, name: str, other: str, fix: str) -> InvalidAnnotation:
        """Return the error about a key that contradicts another."""
        against = self.text(other) or self.label(other)
        state = f"{self.key(other)} is {against!r}" if against else f"there is no {self.key(other)}"
        return self.invalid(name, f"{state}; {fix}")


@contextmanager
def as_annotation() -> Iterator[None]:
    """Turn an input error into one about an annotation; it names the key already."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidAnnotation(error.message, field=error.field) from None


def comma_list(text: str) -> tuple[str, ...]:
    """Return the entries of a stored comma list: each once, without blanks and empty entries."""
    return tuple(dict.fromkeys(entry.strip() for entry in text.split(",") if entry.strip()))


def _names(value: str, key: str) -> tuple[str, ...]:
    names = [name.strip() for name in re.split(r"[,|]", value)]
    if not all(names) or len(set(names)) != len(names) or "=" in value:
        raise invalid(key, value, "write different names with commas between them, without =")
    return tuple(names)
