"""Label and field selectors, as text in a query and as mappings in objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Match = Callable[[Mapping[str, Any]], bool]
_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")  # not one inside parentheses


def label_selector(text: str) -> Match:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    terms = [_label_term(term.strip()) for term in _COMMA.split(text) if term.strip()]
    return lambda item: all(term(item["metadata"].get("labels") or {}) for term in terms)


def _label_term(term: str) -> Match:
    if found := _SET.match(term):
        key, how, listed = found[1], found[2], {part.strip() for part in found[3].split(",")}
        return lambda labels: (labels.get(key) in listed) == (how == "in")
    if "!=" in term:
        key, value = (part.strip() for part in term.split("!="))
        return lambda labels: labels.get(key) != value
    if "=" in term:
        key, value = (part.strip() for part in re.split("==?", term, maxsplit=1))
        return lambda labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda labels: term[1:] not in labels
    return lambda labels: term in labels


def field_selector(text: str) -> Match:
    """`spec.nodeName=n1,status.phase!=Failed`; a field that is absent is ""."""
    terms = [re.split("(!=|==?)", term.strip(), maxsplit=1) for term in text.split(",") if term.strip()]
    return lambda item: all((_field(item, path) == value) == (sign != "!=") for path, sign, value in terms)


def _field(item: Mapping[str, Any], path: str) -> str:
    for part in path.split("."):
        item = item.get(part) or {}
    return str(item) if item else ""


def matches(selector: Mapping[str, Any] | None, item: Mapping[str, Any]) -> bool:
    """A selector in an object: null matches nothing, an empty one everything."""
    if selector is None:
        return False
    labels = item["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _expression(term, labels) for term in selector.get("matchExpressions") or ()
    )


def _expression(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = term["key"], term.get("values") or ()
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
