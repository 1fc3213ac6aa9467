"""Conditions on nodes: terms over labels and tolerated taints, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT64
from ullage.model.taint import ANY_TAINT, Taint, Toleration, tolerated


class Operator(StrEnum):
    """The comparison of a label with values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


NODE_NAME = "metadata.name"
"""The key that matches the node's name."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One condition on a label (or on `metadata.name`).

    Raises:
        InvalidRequest: values are missing, or present where none are allowed; Gt and Lt take one whole number.

    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bare = self.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST)
        numeric = self.operator in (Operator.GT, Operator.LT)
        if bare == bool(self.values):
            fix = f"{self.operator} takes {'no values' if bare else 'at least one value'}"
            raise invalid(f"affinity.{self.key}", self.values, fix)
        if numeric and (len(self.values) != 1 or not _is_int(self.values[0])):
            raise invalid(f"affinity.{self.key}", self.values, f"{self.operator} takes one whole number of 64 bits")

    def holds(self, name: str | None, labels: Mapping[str, str]) -> bool:
        """Return whether a node of that name with these labels satisfies it; an absent label is in no set.

        Without a name the key of names is an ordinary label.
        """
        value = name if self.key == NODE_NAME and name is not None else labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        if value is None or not _is_int(value):
            return False
        here, there = int(value), int(self.values[0])
        return here > there if self.operator is Operator.GT else here < there


Term = tuple[Expression, ...]
"""Conditions that must all hold; an empty term matches nothing."""


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """One of the `required` terms must match, if there are any; `preferred` ones add their weight to a score.

    `tolerations` are those of new work: a node with another taint is excluded.
    """

    required: tuple[Term, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def allows(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the terms allow a node of that name with these labels, whatever its taints."""
        return not self.required or any(_matches(term, name, labels) for term in self.required)

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        """Return whether none of these taints of a node keeps this work off it."""
        return tolerated(taints, self.tolerations)

    def excluding(self, names: Iterable[str]) -> NodeAffinity:
        """Return the affinity that also excludes these nodes."""
        others = (Expression(NODE_NAME, Operator.NOT_IN, tuple(sorted(names))),)
        return replace(self, required=tuple(term and term + others for term in self.required) or (others,))

    def bonus(self, name: str, labels: Mapping[str, str]) -> int:
        """Return the sum that the preferred terms add to the node's score."""
        return sum(weight for weight, term in self.preferred if _matches(term, name, labels))


ANY_NODE = NodeAffinity()
"""Any node without taints."""

EVERY_NODE = NodeAffinity(tolerations=(ANY_TAINT,))
"""Every node, whatever its taints: for what is already on its node, or was already chosen."""


def _matches(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    return bool(term) and all(expression.holds(name, labels) for expression in term)


def _is_int(text: str) -> bool:
    """Return whether a text is a whole number of 64 bits, as Kubernetes reads them."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and text.isascii() and len(digits) <= _DIGITS and abs(int(text)) <= MAX_INT64


_DIGITS = len(str(MAX_INT64))
