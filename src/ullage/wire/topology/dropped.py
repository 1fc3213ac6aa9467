"""Entries of a document that cannot be read: dropped one by one, each with a sentence that states the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.idset import parse_ids
from ullage.wire.document import Document, named, section

_MAX_IDS = 2**18
"""Ids that the sets of one document may have: several times those of the largest machine."""

_MAX_SENTENCES = 100
"""Sentences about one document: enough to see what is wrong with it, too few to fill a log."""
_MAX_LENGTH = 400
"""Characters of a sentence; a document may have strings of any length."""

Read = TypeVar("Read")
Other = TypeVar("Other")


class Dropped:
    """Reads entries and collects why some of them were dropped. The caller logs and counts `warnings`."""

    def __init__(self) -> None:
        self._warnings: list[str] = []
        self._more = 0
        self._ids_left = _MAX_IDS

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each dropped entry, in order; of very many the first, and how many more."""
        more = [f"and {self._more} more"] if self._more else []
        return (*self._warnings, *more)

    def warn(self, warning: str) -> None:
        """Add a sentence."""
        if len(self._warnings) == _MAX_SENTENCES:
            self._more += 1
        else:
            self._warnings.append(warning if len(warning) <= _MAX_LENGTH else f"{warning[:_MAX_LENGTH]}...")

    @contextmanager
    def entry(self) -> Iterator[None]:
        """Run a block that adds one entry; drop the entry if it is malformed or has an unknown meaning."""
        try:
            yield
        except UllageError as error:
            self.warn(error.message)

    def read(self, read: Callable[[], Read], otherwise: Other) -> Read | Other:
        """Return the result of `read`, or `otherwise` if it fails."""
        try:
            return read()
        except InvalidRequest as error:
            self.warn(error.message)
            return otherwise

    def choice(self, word: object, path: str, known: Sequence[str]) -> str:
        """Return a known word; a missing or unknown one is read as the first of `known`, the default."""
        default, *_ = known
        if word in known:
            return str(word)
        if word not in (None, ""):
            self.warn(invalid(path, word, f"{', '.join(known)} are known; it is read as {default}").message)
        return default

    def ids(self, text: object, path: str) -> tuple[int, ...]:
        """Return the ids of a set.

        Ranges are short to write, so there is a common limit on the ids of all sets of a document.
        """
        ids = parse_ids(text, path, count=self._ids_left)
        self._ids_left -= len(ids)
        return ids

    def section(self, value: object, path: str) -> Document:
        """Return the mapping at a path; an empty one if there is none or it has another type."""
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.warn(invalid(path, value, "a mapping is needed").message)
        return {}

    def rows(self, value: object, path: str) -> Iterator[tuple[str, Document]]:
        """Yield each mapping in the list at a path, with its own path; other items are dropped."""
        if value is not None and not isinstance(value, list | tuple):
            self.warn(invalid(path, value, "a list is needed").message)
            return
        for position, item in enumerate(value or ()):
            here = f"{path}[{position}]"
            if isinstance(item, Mapping):
                yield here, item
            else:
                self.warn(invalid(here, item, "a mapping is needed").message)


def as_object(document: object, kind: str) -> tuple[Document, str]:
    """Return a document as an object of this kind, and its name."""
    if not isinstance(document, Mapping):
        raise invalid("document", document, f"a mapping is needed, of kind {kind}")
    if document.get("kind", kind) != kind:
        raise invalid("kind", document["kind"], f"{kind} is needed")
    return document, named(section(document, "metadata").get("name"), "metadata.name")
