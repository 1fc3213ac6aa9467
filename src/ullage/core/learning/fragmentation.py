"""How much of what is idle no likely task can use, and how many wide tasks still fit.

Both follow the books: the figures of a node are computed again only after it changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import columns as at
from ullage.core.kernel.shares import measure
from ullage.core.placing.placement import table_of
from ullage.core.strategies import strategy_named
from ullage.core.strategies.workload import Workload
from ullage.model.request import ResourceRequirement


class IdleCards(NamedTuple):
    """Thousandths of cards: idle, and of these the part that no task of the workload can use."""

    idle_milli: float
    fragments_milli: float


NOTHING = Workload((), (), 0)
"""The workload while nothing is known: no idle card counts as a fragment."""


class Fragments:
    """Fragmentation of every node of a fleet for one workload.

    Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 3.
    """

    def __init__(self, fleet: Fleet, workload: Workload) -> None:
        self.workload = workload
        self._fleet = fleet
        self._mix = workload.on(fleet)
        self._clock = -1
        self._models: dict[str, list[int]] = {}
        for row, node in enumerate(fleet.nodes):
            if node.gpus:
                self._models.setdefault(node.gpus[0].model or "", []).append(row)
        self._of_nodes = np.zeros((len(IdleCards._fields), len(fleet.nodes)))

    def total(self) -> IdleCards:
        """Return the figures of the whole fleet."""
        return IdleCards(*self._refreshed().sum(axis=1).tolist())

    def by_model(self) -> dict[str, IdleCards]:
        """Return the figures per model of cards ("" if unknown); a node has the model of its first card."""
        found = self._refreshed()
        return {model: IdleCards(*found[:, rows].sum(axis=1).tolist()) for model, rows in sorted(self._models.items())}

    def _refreshed(self) -> at.Scores:
        fleet = self._fleet
        rows = np.array(fleet.touched_since(self._clock), dtype=np.int64)
        self._clock = fleet.clock
        open_to_work = fleet.schedulable, fleet.card_usable
        measure(fleet.node_rows, fleet.card_rows, rows, *open_to_work, *self._mix, self._of_nodes)
        return self._of_nodes


def fragments_of(fleet: Fleet, workload: Workload) -> Fragments:
    """Return the fragments of these books, which store them."""
    known = fleet.tables.get(Fragments)
    if not isinstance(known, Fragments) or known.workload is not workload:
        known = fleet.tables[Fragments] = Fragments(fleet, workload)
    return known


def fits_now(fleet: Fleet) -> dict[int, int]:
    """Return per number of whole cards (1, 2, 4, ... to the largest node) how many requests fit now, without cpu."""
    largest = int(np.diff(fleet.gpu_start).max(initial=0))
    sizes = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    strategy = strategy_named("best-fit")
    return {
        cards: int(table_of(fleet, ResourceRequirement.of(gpu=cards), strategy).refreshed().room.sum())
        for cards in (*sizes, *([largest] if largest else []))
    }
