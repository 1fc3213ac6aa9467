"""Changes to a document as a JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.model.error import InvalidRequest, invalid
from ullage.wire.document import Document


class PatchOperation(msgspec.Struct, frozen=True):
    """One change: `value` is put at `path`, a JSON pointer; a removal has no value."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class JsonPatch:
    """Collects changes. A value that the document already has is no change, so that a second run collects none."""

    def __init__(self, document: Document) -> None:
        self.document: dict[str, Any] = dict(document)
        """The document as it is after the changes. It has copies of the containers that changed, and shares others."""
        self.operations: list[PatchOperation] = []
        self._own: dict[int, object] = {id(self.document): self.document}
        """By identity, the containers that are not shared with the given document or with a written value."""

    def put(self, *path: str | int, value: Any) -> None:
        """Set a value under a key, or at an existing position of a list; missing mappings on the way are created."""
        inside, (*_, last) = self._inside(path), path
        if isinstance(inside, dict) and isinstance(last, str):
            op, known = ("replace" if last in inside else "add"), inside.get(last)
        elif isinstance(inside, list) and isinstance(last, int) and 0 <= last < len(inside):
            op, known = "replace", inside[last]
        else:
            raise _no_place(path, last)
        if op == "add" or known != value or type(known) is not type(value):
            inside[last] = value
            self.operations.append(PatchOperation(op, pointer(*path), value))

    def append(self, *path: str | int, value: Any) -> None:
        """Add a value to a list unless it is already there; a missing list is created."""
        listed = self._there(path)
        if listed is None:
            self.put(*path, value=[value])
        elif not isinstance(listed, list):
            raise invalid(pointer(*path), listed, "a list is needed")
        elif value not in listed:
            self._inside((*path, 0)).append(value)
            self.operations.append(PatchOperation("add", f"{pointer(*path)}/-", value))

    def remove(self, *path: str | int) -> None:
        """Remove a key, or an item of a list; nothing happens if it is absent."""
        if self._there(path) is not None:
            inside, (*_, last) = self._inside(path), path
            del inside[last]
            self.operations.append(PatchOperation("remove", pointer(*path)))

    def _there(self, path: tuple[str | int, ...]) -> Any:
        inside: Any = self.document
        for step in path:
            if isinstance(inside, dict):
                inside = inside.get(step)
            elif isinstance(inside, list) and isinstance(step, int) and 0 <= step < len(inside):
                inside = inside[step]
            else:
                return None
        return inside

    def _inside(self, path: tuple[str | int, ...]) -> Any:
        """Return the container of the last step of a path, to change it; missing mappings on the way are created."""
        inside: Any = self.document
        for depth, step in enumerate(path[:-1], 1):
            if isinstance(inside, dict) and isinstance(step, str):
                if inside.get(step) is None:
                    if (position := next((each for each in path[depth:] if isinstance(each, int)), None)) is not None:
                        raise _no_place(path[:depth], position)
                    self.put(*path[:depth], value={})
            elif not (isinstance(inside, list) and isinstance(step, int) and 0 <= step < len(inside)):
                raise _no_place(path[:depth], step)
            own = inside[step] = self._owned(inside[step])
            inside = own
        return inside

    def _owned(self, value: Any) -> Any:
        """Return a container that may be changed: the given one if it is not shared, else a copy."""
        if id(value) in self._own or not isinstance(value, dict | list):
            return value
        copy = value.copy()
        self._own[id(copy)] = copy
        return copy


def pointer(*path: str | int) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def _no_place(path: tuple[str | int, ...], step: str | int) -> InvalidRequest:
    return invalid(pointer(*path), step, "there is no such place in the document")
