"""Label selectors, as Kubernetes writes them."""

from __future__ import annotations

from typing import Any

from ullage.model.affinity import Expression, Operator, Term
from ullage.model.error import invalid
from ullage.wire.document import Document, mapping, mappings, sequence


def read_selector(document: object, field: str) -> Term | None:
    """Return the conditions of a label selector; None for no selector, which differs from an empty one."""
    if document is None:
        return None
    selector = mapping(document, field)
    unknown = sorted(map(str, selector.keys() - {"matchLabels", "matchExpressions"}))
    if unknown:
        raise invalid(field, ", ".join(unknown), "only matchLabels and matchExpressions are known")
    path = f"{field}.matchLabels"
    labels = mapping(selector.get("matchLabels"), path)
    for key, value in labels.items():
        check_string(key, path)
        check_string(value, f"{path}.{key}", empty=True)
    equal = (Expression(key, Operator.IN, (labels[key],)) for key in sorted(labels))
    path = f"{field}.matchExpressions"
    return (*equal, *(_condition(each, here) for here, each in mappings(selector.get("matchExpressions"), path)))


def _condition(document: Document, path: str) -> Expression:
    key, operator = document.get("key"), document.get("operator")
    check_string(key, f"{path}.key")
    if operator not in _OPERATORS:
        raise invalid(f"{path}.operator", operator, f"choose one of {', '.join(_OPERATORS)}")
    values = sequence(document.get("values"), f"{path}.values")
    for position, value in enumerate(values):
        check_string(value, f"{path}.values[{position}]", empty=True)
    return Expression(str(key), Operator(str(operator)), tuple(values))


def write_selector(selector: Term) -> dict[str, Any]:
    """Return the label selector of conditions."""
    return {"matchExpressions": list(map(write_expression, selector))} if selector else {}


def write_expression(expression: Expression) -> dict[str, Any]:
    """Return a condition on a label as Kubernetes writes it."""
    body: dict[str, Any] = {"key": expression.key, "operator": expression.operator.value}
    return {**body, "values": list(expression.values)} if expression.values else body


_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)


def check_string(value: object, path: str, *, empty: bool = False) -> None:
    """Refuse a value that is not a string, or is empty unless `empty`."""
    if not isinstance(value, str) or not (value or empty):
        raise invalid(path, value, "a text is needed; put it in quotes")
