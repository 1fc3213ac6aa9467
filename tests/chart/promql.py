"""What an expression of Prometheus uses: metrics with the labels of their selectors, and the labels it groups by."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_SELECTOR = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(\{[^{}]*\}|\()?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset"})


@dataclass(frozen=True)
class Used:
    """The metrics of an expression, each with the labels of its selectors, and the labels it groups by."""

    metrics: dict[str, frozenset[str]]
    groups: frozenset[str]


def used_by(expression: str) -> Used:
    """Return what an expression uses. Raises `ValueError` if its brackets are not balanced."""
    plain = _STRING.sub('""', expression)
    _check_brackets(plain)
    groups = frozenset(label.strip() for found in _GROUPING.findall(plain) for label in found.split(","))
    metrics: dict[str, frozenset[str]] = {}
    for name, after in _SELECTOR.findall(_RANGE.sub("", _GROUPING.sub(" ", plain))):
        if after != "(" and name not in _KEYWORDS:
            metrics[name] = metrics.get(name, frozenset()) | frozenset(_MATCHER.findall(after))
    return Used(metrics, groups)


def _check_brackets(expression: str) -> None:
    open_ones: list[str] = []
    for letter in expression:
        if letter in "([{":
            open_ones.append(letter)
        elif letter in ")]}" and (not open_ones or open_ones.pop() + letter not in ("()", "[]", "{}")):
            raise ValueError(f"a bracket closes what is not open: {expression}")
    if open_ones:
        raise ValueError(f"a bracket stays open: {expression}")
