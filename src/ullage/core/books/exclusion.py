"""Which nodes a request's terms allow, as one bit per node: an AND over 100,000 nodes reads 12.5 KB.

A mask is made once per condition and inventory; `NodeAffinity` is the rule that it follows.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import reduce

import numpy as np
import numpy.typing as npt

from ullage.core.books.labels import Labels
from ullage.model.affinity import Expression, NodeAffinity, Operator, Term

Bits = npt.NDArray[np.uint8]
"""Eight nodes a byte, the first node in the highest bit."""

_MAX_MASKS = 4096
"""Conditions remembered at a time: 51 MB at 100,000 nodes."""


class Exclusion:
    """Masks over the nodes of one inventory."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._masks: dict[Expression, Bits] = {}

    def allowed(self, affinity: NodeAffinity) -> npt.NDArray[np.bool_]:
        """Return per node whether one of the required terms matches, if there are any."""
        if not affinity.required:
            return np.ones(len(self.labels.nodes), np.bool_)
        return self._unpacked(reduce(np.bitwise_or, map(self._term, affinity.required)))

    def bonus(self, affinity: NodeAffinity) -> npt.NDArray[np.int64]:
        """Return per node what the preferred terms add to its score."""
        total = np.zeros(len(self.labels.nodes), np.int64)
        for weight, term in affinity.preferred:
            total[self._unpacked(self._term(term))] += weight
        return total

    def _term(self, term: Term) -> Bits:
        if not term:
            return np.packbits(np.zeros(len(self.labels.nodes), np.bool_))
        return reduce(np.bitwise_and, map(self._mask, term))

    def _mask(self, expression: Expression) -> Bits:
        mask = self._masks.get(expression)
        if mask is None:
            if len(self._masks) >= _MAX_MASKS:
                self._masks.clear()
            mask = self._masks[expression] = np.packbits(self._holds(expression))
        return mask

    def _holds(self, expression: Expression) -> npt.NDArray[np.bool_]:
        """Asked once per value instead of once per node; a set says nothing of the values that it does not name."""
        column = self.labels.column(expression.key)
        values: AbstractSet[str] = column.number_of.keys()
        others = False
        if expression.operator in (Operator.IN, Operator.NOT_IN):
            values, others = values & set(expression.values), expression.operator is Operator.NOT_IN
        holds = np.full(len(column.number_of) + 1, others)
        holds[-1] = expression.holds("", {})
        for value in values:
            holds[column.number_of[value]] = expression.holds(value, {expression.key: value})
        return holds[column.numbers]

    def _unpacked(self, bits: Bits) -> npt.NDArray[np.bool_]:
        return np.unpackbits(bits, count=len(self.labels.nodes)).astype(np.bool_)
