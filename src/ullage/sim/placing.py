"""Placement of tasks by the scheduler's core: the only part of the simulator that calls it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.learning.fragmentation import fragments_of
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.strategies import STRATEGIES, strategy_named
from ullage.core.strategies.leftover import leftover
from ullage.core.strategies.published import PUBLISHED, published
from ullage.core.strategies.strategy import Strategy
from ullage.core.strategies.workload import LiveWorkload, Workload, typical_workload, whole_workload
from ullage.core.verdict.cards import charges_on
from ullage.model.allocation import Allocation
from ullage.model.error import invalid
from ullage.model.nearest import one_of
from ullage.model.request import ResourceRequirement
from ullage.sim.trace import Numbers

NOT_PLACED = -1

LEFTOVER, LIVE = "leftover", "leftover-live"
"""Policies: one knows the whole workload, the other learns it from arrivals."""

_COLD = "best-fit-published"
"""The policy that `leftover` uses while the workload is unknown."""


def policies() -> tuple[str, ...]:
    """Return the names of all policies: strategies, published policies, and those of the simulator."""
    return tuple(dict.fromkeys((*STRATEGIES, *PUBLISHED, LEFTOVER, LIVE)))


def policy_named(name: str, field: str = "policy") -> str:
    """Return the name of a policy in the form of `policies`.

    Raises:
        InvalidRequest: the policy is unknown.

    """
    policy = name.replace("_", "-")
    if policy not in policies():
        raise invalid(field, name, one_of(name, policies()))
    return policy


def _strategy(fleet: Fleet, policy: str, tasks: Sequence[ResourceRequirement], seed: int) -> Strategy:
    if policy == LEFTOVER and tasks:
        return leftover(fleet, whole_workload(tasks))
    if policy in (LEFTOVER, LIVE):
        policy = _COLD
    return published(policy, typical_workload(tasks).on(fleet), seed) or strategy_named(policy)


class Placing:
    """Places units of `shapes` on a fleet under a policy. Some policies use all `tasks`, or draw from `seed`.

    Raises:
        InvalidRequest: the policy is unknown.

    """

    def __init__(
        self,
        fleet: Fleet,
        shapes: Sequence[ResourceRequirement],
        policy: str,
        tasks: Sequence[ResourceRequirement] = (),
        seed: int = 0,
    ) -> None:
        self._fleet = fleet
        self._shapes = shapes
        self._milli = [fleet.resources(shape).gpu_milli for shape in shapes]
        policy = policy_named(policy)
        self._placer = Placer(fleet, Policy(), _strategy(fleet, policy, tasks, seed))
        self._live = LiveWorkload() if policy == LIVE else None
        self._number = 0
        self._held: dict[str, int] = {}
        self._allocated = 0

    def arrived(self, shape: int) -> None:
        """Pass an arrival, placed or not, to a policy that learns the workload."""
        if self._live is not None and self._live.see(self._shapes[shape]) and self._live.estimate is not None:
            self._fleet.tables.clear()  # the tables of the last estimate are outdated
            self._placer = Placer(self._fleet, Policy(), leftover(self._fleet, self._live.estimate, live=True))

    def place(self, shape_numbers: Numbers) -> Numbers:
        """Try to place each arrival once, in order. Return the rows of their nodes, -1 for those not placed."""
        found = np.full(len(shape_numbers), NOT_PLACED)
        for number, shape in enumerate(shape_numbers.tolist()):
            allocation = self._place(shape)
            self.arrived(shape)
            if allocation is not None:
                found[number] = self._fleet.row_of[allocation.node]
        return found

    def place_one(self, shape: int) -> str | None:
        """Place one unit. Return its id; None if it does not fit."""
        allocation = self._place(shape)
        return None if allocation is None else allocation.id

    def _place(self, shape: int) -> Allocation | None:
        self._number += 1
        allocation = self._placer.place(str(self._number), self._shapes[shape])
        if allocation is not None:
            self._record(allocation, shape)
        return allocation

    def _record(self, allocation: Allocation, shape: int) -> None:
        self._held[allocation.id] = shape
        self._allocated += self._milli[shape]

    def hold(self, shape: int, node: str, gpus: Sequence[str]) -> str:
        """Charge a unit on given cards, even beyond their capacity. Return its id. Unknown cards are left out."""
        asked = self._shapes[shape]
        cards = [self._fleet.card_of[uuid] for uuid in gpus if uuid in self._fleet.card_of]
        self._number += 1
        charges = charges_on(self._fleet, cards, asked)
        allocation = Allocation(str(self._number), node, asked, self._fleet.uuids(cards), charges=charges)
        self._fleet.charge(allocation, force=True)
        self._record(allocation, shape)
        return allocation.id

    def release(self, allocation_id: str) -> None:
        """Release a unit."""
        self._fleet.release(allocation_id)
        self._allocated -= self._milli[self._held.pop(allocation_id)]

    def allocated_milli(self) -> int:
        """Return the allocated thousandths of cards."""
        return self._allocated

    def fragmentation(self, workload: Workload) -> float:
        """Return the expected thousandths of idle cards that a task of the workload cannot use."""
        return fragments_of(self._fleet, workload).total().fragments_milli
