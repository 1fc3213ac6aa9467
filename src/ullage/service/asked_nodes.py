"""The nodes of a question as rows of the books, cached: a scheduler asks about the same nodes again and again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Column, Fleet


class AskedNodes(NamedTuple):
    """Names of nodes in a question, and their rows in these books, -1 where there is none."""

    fleet: Fleet
    names: Sequence[str]
    array: npt.NDArray[np.object_]
    rows: Column


class NodeRows:
    """Remembers the last questions: one about all nodes, and one about those that fitted."""

    def __init__(self) -> None:
        self._all: AskedNodes | None = None
        self._fitted: AskedNodes | None = None

    def of(self, fleet: Fleet, nodes: Sequence[str]) -> AskedNodes:
        """Return the rows of nodes."""
        for known in (self._all, self._fitted):
            if known is not None and known.fleet is fleet and known.names == nodes:
                return known
        rows = np.fromiter(map(fleet.row_of.get, nodes, repeat(-1)), np.int64, len(nodes))
        asked, last = AskedNodes(fleet, nodes, np.array(nodes, dtype=np.object_), rows), self._all
        if last is None or last.fleet is not fleet or len(nodes) >= len(last.names):
            self._all = asked
        return asked

    def fitted(self, nodes: AskedNodes) -> None:
        """Remember the nodes that fitted: the next question is often about these."""
        self._fitted = nodes
