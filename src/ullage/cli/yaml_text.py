"""Values of JSON as YAML text that readers of YAML 1.1 and of 1.2 read in the same way.

The command line has its own writer because a reader of YAML is a dependency of the server alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*", re.ASCII)
"""Texts that need no quotes, unless they are among `_WORDS`."""

_WORDS = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null"})
"""Words that some version of YAML reads as a truth value or as nothing."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(value: object) -> str:
    """Return dictionaries, lists, texts, numbers, truth values and None as YAML, with a final line break."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(str(key))}:", item)
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, item: object) -> Iterator[str]:
    if isinstance(item, dict | list) and item:
        yield key
        yield from (f"  {line}" for line in _lines(item))
    else:
        yield f"{key} {_scalar(item)}"


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _float(value: float) -> str:
    text = repr(value)
    if text.lstrip("-") in ("inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\U{ord(character):08X}"
