"""Numbers for the contents of rows: a row that a trial gave back has the number again that it had before.

The clock of the books moves on with a rollback too, so that tables follow it. Whoever caches what is expensive to say
of a row compares these numbers instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel import columns as at
from ullage.model.allocation import Allocation


class Step(NamedTuple):
    """A change of the ledger that can be taken back: what was there before, and the number of its row (-1: unknown)."""

    key: str
    before: Allocation | None
    row: int = -1
    content: int = -1


class RowContents:
    """The numbers of the contents of these rows of nodes."""

    def __init__(self, node_rows: at.Rows) -> None:
        self._changed = node_rows[:, at.CHANGED]
        self._given_back = np.full((len(node_rows), 2), -2, dtype=np.int64)
        """Per row that a trial gave back: the clock of that change, and the number that it has again."""

    def of(self, rows: at.Rows) -> at.Rows:
        """Return a number per row. An equal number means an equal content of that row."""
        changed, given_back = self._changed[rows], self._given_back[rows]
        return np.where(given_back[:, 0] == changed, given_back[:, 1], changed)

    def of_row(self, row: int) -> int:
        """Return the number of one row."""
        changed, given_back = self._changed.item(row), self._given_back
        return given_back.item(row, 1) if given_back.item(row, 0) == changed else changed

    def give_back(self, row: int, content: int) -> None:
        """Note that a row has the content of this number again, since its last change."""
        self._given_back[row] = self._changed.item(row), content

    def copy(self, node_rows: at.Rows) -> RowContents:
        """Return the same for a copy of the rows."""
        twin = RowContents(node_rows)
        twin._given_back[:] = self._given_back
        return twin
