"""Patches: RFC 6902, RFC 7386, and strategic merges as far as maps and conditions go."""

import copy
from typing import Any

_MERGE_KEYS = {"conditions": "type", "containers": "name", "initContainers": "name"}


class Unpatchable(Exception):
    """The patch does not fit the object."""


def merge(into: Any, patch: Any, *, strategic: bool = False, field: str = "") -> Any:
    """What a merge makes of a value; null takes a field away."""
    if strategic and isinstance(patch, list) and isinstance(into, list) and field in _MERGE_KEYS:
        return _merge_list(into, patch, _MERGE_KEYS[field])
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    made = dict(into) if isinstance(into, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value, strategic=strategic, field=key)
    return made


def _merge_list(into: list[Any], patch: list[Any], key: str) -> list[Any]:
    made = {item[key]: item for item in into}
    for item in patch:
        made[item[key]] = merge(made.get(item[key]), item, strategic=True)
    return list(made.values())


def apply_operations(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after a JSON patch: all of it, or none."""
    root = {"": copy.deepcopy(document)}
    for operation in operations:
        path = _parts(operation["path"])
        match operation["op"]:
            case "add":
                _put(root, path, copy.deepcopy(operation["value"]), insert=True)
            case "replace":
                _look(root, path)
                _put(root, path, copy.deepcopy(operation["value"]), insert=False)
            case "remove":
                _take(root, path)
            case "move":
                _put(root, path, _take(root, _parts(operation["from"])), insert=True)
            case "copy":
                _put(root, path, copy.deepcopy(_look(root, _parts(operation["from"]))), insert=True)
            case "test":
                if _look(root, path) != operation["value"]:
                    raise Unpatchable(f"testing value {operation['path']} failed")
            case other:
                raise Unpatchable(f"unknown operation {other!r}")
    return root[""]


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]


def _step(holder: Any, part: str) -> Any:
    try:
        return holder[int(part)] if isinstance(holder, list) else holder[part]
    except (KeyError, IndexError, TypeError, ValueError):
        raise Unpatchable(f"doc is missing key: {part}") from None


def _look(root: Any, path: list[str]) -> Any:
    for part in path:
        root = _step(root, part)
    return root


def _put(root: Any, path: list[str], value: Any, *, insert: bool) -> None:
    holder, last = _look(root, path[:-1]), path[-1]
    if isinstance(holder, dict):
        holder[last] = value
    elif not isinstance(holder, list):
        raise Unpatchable(f"doc is missing path: {'/'.join(path)}")
    elif insert:
        holder.insert(len(holder) if last == "-" else int(last), value)
    else:
        holder[int(last)] = value


def _take(root: Any, path: list[str]) -> Any:
    value = _look(root, path)
    holder, last = _look(root, path[:-1]), path[-1]
    del holder[int(last) if isinstance(holder, list) else last]
    return value
