"""The one place where the simulator meets the core's placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ullage.core.filters import charges_on
from ullage.core.fleet import Fleet
from ullage.core.placement import Placer
from ullage.core.policy import Policy
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.sim.trace import Numbers
from ullage.sim.workload import Workload

NOT_PLACED = -1


class Placing:
    """Places units of `shapes` on a fleet under a policy (a name of `core.strategies.STRATEGIES`).

    Raises:
        InvalidRequest: there is no such policy.

    """

    def __init__(self, fleet: Fleet, shapes: Sequence[ResourceRequirement], policy: str) -> None:
        self._fleet = fleet
        self._shapes = shapes
        self._milli = [fleet.resources(shape).gpu_milli for shape in shapes]
        self._placer = Placer(fleet, Policy(strategy=policy))
        self._number = 0
        self._held: dict[str, int] = {}
        self._allocated = 0
        self._room: _Fragments | None = None

    def place(self, shape_numbers: Numbers) -> Numbers:
        """Place arrivals in order, each tried once: the row of its node, -1 if it was not placed."""
        rows = (self._place(shape) for shape in shape_numbers.tolist())
        found = (NOT_PLACED if each is None else self._fleet.row_of[each.node] for each in rows)
        return np.fromiter(found, dtype=np.int64, count=len(shape_numbers))

    def place_one(self, shape: int) -> str | None:
        """Place one unit: its id, None if it fits nowhere."""
        allocation = self._place(shape)
        return None if allocation is None else allocation.id

    def _place(self, shape: int) -> Allocation | None:
        self._number += 1
        allocation = self._placer.place(str(self._number), self._shapes[shape])
        if allocation is not None:
            self._enter(allocation, shape)
        return allocation

    def _enter(self, allocation: Allocation, shape: int) -> None:
        self._held[allocation.id] = shape
        self._allocated += self._milli[shape]

    def hold(self, shape: int, node: str, gpus: Sequence[str]) -> str:
        """Enter a unit where something else put it, whether it fits or not: its id. Unknown cards are left out."""
        asked = self._shapes[shape]
        cards = [self._fleet.card_of[uuid] for uuid in gpus if uuid in self._fleet.card_of]
        self._number += 1
        charges = charges_on(self._fleet, cards, asked)
        allocation = Allocation(str(self._number), node, asked, self._fleet.uuids(cards), charges=charges)
        self._fleet.charge(allocation, force=True)
        self._enter(allocation, shape)
        return allocation.id

    def release(self, allocation_id: str) -> None:
        """Free what a unit holds."""
        self._fleet.release(allocation_id)
        self._allocated -= self._milli[self._held.pop(allocation_id)]

    def allocated_milli(self) -> int:
        """Thousandths of cards that are held."""
        return self._allocated

    def fragmentation(self, workload: Workload) -> float:
        """Thousandths of idle cards that a task of the workload could not use, as it is expected."""
        if self._room is None or self._room.workload is not workload:
            self._room = _Fragments(self._fleet, workload)
        return self._room.total()


class _Fragments:
    """Fragmentation of every node, computed again only where something changed."""

    def __init__(self, fleet: Fleet, workload: Workload) -> None:
        self.workload = workload
        self._fleet = fleet
        self._clock = -1
        self._of_nodes = np.zeros(len(fleet.nodes))
        self._popularity = np.array(workload.popularity)
        self._cpu, self._share, self._cards = (
            np.array(column, dtype=np.int64)
            for column in zip(*((m.cpu_milli, m.share_milli, m.cards) for m in workload.classes), strict=True)
        )
        self._may = [self._allowed(node.gpus[0].model if node.gpus else None) for node in fleet.nodes]

    def _allowed(self, model: str | None) -> npt.NDArray[np.bool_]:
        return np.array([not m.models or model in m.models for m in self.workload.classes])

    def total(self) -> float:
        rows = self._fleet.touched_since(self._clock) if self._clock >= 0 else None
        self._compute(range(len(self._of_nodes)) if rows is None else rows)
        self._clock = self._fleet.clock
        return float(self._of_nodes.sum())

    def _compute(self, rows: Iterable[int]) -> None:
        free = _free_milli(self._fleet)
        for row in rows:
            cards = self._fleet.cards_on(row)
            if cards:
                self._of_nodes[row] = self._of_node(row, free[cards.start : cards.stop])

    def _of_node(self, row: int, free: Numbers) -> float:
        """F = sum of p F(m): all that is idle where m cannot run or needs no card, else cards too full for m."""
        too_full = free[None, :] < self._share[:, None]
        runs = self._may[row] & (self._cards > 0) & (self._fleet.cpu_free[row] >= self._cpu)
        runs &= (~too_full).sum(axis=1) >= self._cards
        wasted = np.where(runs, (free * too_full).sum(axis=1), free.sum())
        return float(wasted @ self._popularity)


def _free_milli(fleet: Fleet) -> Numbers:
    """Per card, the free share: the smaller of compute and vram."""
    shares = [
        np.maximum(free, 0) * MILLI // np.maximum(total, 1)
        for free, total in ((fleet.compute_free, fleet.compute_total), (fleet.vram_free, fleet.vram_total))
    ]
    share: Numbers = np.where(fleet.card_usable, np.minimum(*shares), 0)
    return share
