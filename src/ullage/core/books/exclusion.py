"""Which nodes a request's terms and tolerations allow, as one bit per node: an AND over 100,000 nodes reads 12.5 KB.

A mask is made once per condition, or tolerations, and inventory; `NodeAffinity` is the rule that it follows.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import reduce

import numpy as np
import numpy.typing as npt

from ullage.core.books.labels import Labels
from ullage.model.affinity import Expression, NodeAffinity, Operator, Term
from ullage.model.taint import Taint, Toleration

Bits = npt.NDArray[np.uint8]
"""Eight nodes a byte, the first node in the highest bit."""

_MAX_MASKS = 4096
"""Conditions remembered at a time: 51 MB at 100,000 nodes."""

_MAX_TOLERATIONS = 256
"""Tolerations of pods remembered at a time: 26 MB at 100,000 nodes."""


class Exclusion:
    """Masks over the nodes of one inventory."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._masks: dict[Expression, Bits] = {}
        numbers: dict[tuple[Taint, ...], int] = {(): 0}
        taints = [numbers.setdefault(node.taints, len(numbers)) for node in labels.nodes]
        self._taint_sets: tuple[tuple[Taint, ...], ...] = tuple(numbers)
        self._taints_of = np.array(taints if len(numbers) > 1 else [], np.int64)
        """Per node the number of its taints, if any node has some."""
        self._tolerated: dict[tuple[Toleration, ...], npt.NDArray[np.bool_]] = {}

    def excludes(self, affinity: NodeAffinity) -> bool:
        """Return whether a node may be excluded: there are required terms, or any node has taints."""
        return bool(affinity.required) or len(self._taint_sets) > 1

    def allowed(self, affinity: NodeAffinity) -> npt.NDArray[np.bool_]:
        """Return per node whether its taints are tolerated and one of the required terms matches, if there are any."""
        return self.matching(affinity) & self.tolerated(affinity) if self.excludes(affinity) else self._every()

    def matching(self, affinity: NodeAffinity) -> npt.NDArray[np.bool_]:
        """Return per node whether one of the required terms matches, if there are any, whatever its taints."""
        if not affinity.required:
            return self._every()
        return self._unpacked(reduce(np.bitwise_or, map(self._term, affinity.required)))

    def tolerated(self, affinity: NodeAffinity) -> npt.NDArray[np.bool_]:
        """Return per node whether its taints are tolerated. Nobody may write to the array."""
        if len(self._taint_sets) == 1:
            return self._every()
        found = self._tolerated.get(affinity.tolerations)
        if found is None:
            if len(self._tolerated) >= _MAX_TOLERATIONS:
                self._tolerated.clear()
            of_set = np.array([affinity.tolerates(taints) for taints in self._taint_sets], np.bool_)
            found = self._tolerated[affinity.tolerations] = of_set[self._taints_of]
        return found

    def bonus(self, affinity: NodeAffinity) -> npt.NDArray[np.int64]:
        """Return per node what the preferred terms add to its score."""
        total = np.zeros(len(self.labels.nodes), np.int64)
        for weight, term in affinity.preferred:
            total[self._unpacked(self._term(term))] += weight
        return total

    def _every(self) -> npt.NDArray[np.bool_]:
        return np.ones(len(self.labels.nodes), np.bool_)

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
