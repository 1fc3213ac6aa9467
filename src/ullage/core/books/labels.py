"""What nodes say of themselves, as columns: per label key a number for the value of each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ullage.model.affinity import NODE_NAME
from ullage.model.node import Node

Column = npt.NDArray[np.int64]

_MAX_COLUMNS = 1024
"""Keys remembered at a time."""

ABSENT = -1
"""The number of a node that does not have the label."""


class LabelColumn:
    """The values of one key, in the order of the nodes that are the first to have them, and each node's number."""

    def __init__(self, texts: Sequence[str | None]) -> None:
        self.number_of: dict[str, int] = {}
        for text in texts:
            if text is not None:
                self.number_of.setdefault(text, len(self.number_of))
        self.numbers: Column = np.array([ABSENT if text is None else self.number_of[text] for text in texts], np.int64)


class Labels:
    """Label columns of one inventory, each read from the nodes when it is first asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._columns: dict[str, LabelColumn] = {}
        self._domains: dict[str, Column] = {}

    def column(self, key: str) -> LabelColumn:
        """Return the values of a key; `metadata.name` is the name of the node."""
        found = self._columns.get(key)
        if found is None:
            if len(self._columns) >= _MAX_COLUMNS:
                self._columns.clear()
            texts = [node.name if key == NODE_NAME else node.labels.get(key) for node in self.nodes]
            found = self._columns[key] = LabelColumn(texts)
        return found

    def domains(self, key: str) -> Column:
        """Return per node the number of its domain: nodes with the same value of the label are in one.

        A node without the label is a domain of its own: nobody says that it is near another one.
        """
        found = self._domains.get(key)
        if found is None:
            column = self.column(key)
            found = self._domains[key] = column.numbers.copy()
            alone = np.nonzero(found == ABSENT)[0]
            found[alone] = len(column.number_of) + np.arange(len(alone))
        return found
