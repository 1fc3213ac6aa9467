"""Whether a session, or a gated request, can ever be placed: one rule for all who ask."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import has_room
from ullage.core.sharing.world import Demand
from ullage.core.verdict.shape import shape_of
from ullage.model.queue import Limit, Queue
from ullage.model.queue_bounds import upwards
from ullage.model.rejection import NEVER_PLACED, Code, Cure, Rejection
from ullage.model.resources import Resources


class Reach:
    """What is placed alone on nodes that are otherwise empty, within the limits of its queues and its application."""

    def __init__(self, fleet: Fleet, policy: Policy, queues: Iterable[Queue]) -> None:
        self._fleet, self._policy = fleet, policy
        self._empty = Placer(fleet.emptied(), policy)
        self._queues = {queue.name: queue for queue in queues}
        self._rooms: dict[Hashable, tuple[Resources, int]] = {}
        self._shut: dict[Hashable, Code] = {}
        self._obstacles: dict[Hashable, Code | None] = {}

    def obstacle(self, demand: Demand) -> Code | None:
        """Return why no batch of a demand is placed, even alone; None if one is.

        Some obstacles are for good (`NEVER_PLACED`). `NO_NODES`: there is no node, or those that could take it take
        no new work.
        """
        key = shape_of(self._fleet, demand.requirement), demand.batch_size, demand.queue, demand.application_max
        if key not in self._obstacles:
            no_room = None if self.room(demand) >= demand.batch_size else self._why_no_room(demand)
            large = no_room is Code.TOO_LARGE or self.limit(demand) is None
            self._obstacles[key] = no_room if large else Code.ABOVE_LIMIT
        return self._obstacles[key]

    def never(self, demand: Demand) -> Code | None:
        """Return the obstacle that is for good; None if there is none."""
        code = self.obstacle(demand)
        return code if code in NEVER_PLACED else None

    def _why_no_room(self, demand: Demand) -> Code:
        """Return why a batch fits no empty node that takes work: none is large enough, or those that are take none."""
        fleet = self._fleet
        if not fleet.schedulable.any():
            return Code.NO_NODES
        key = (shape_of(fleet, demand.requirement), demand.batch_size)
        if key not in self._shut:
            closed_fit = not fleet.schedulable.all() and has_room(Placer(fleet.opened(), self._policy), demand)
            self._shut[key] = Code.NO_NODES if closed_fit else Code.TOO_LARGE
        return self._shut[key]

    def limit(self, demand: Demand) -> Rejection | None:
        """Return the limit of a queue, or of the application, that one batch alone exceeds; None if it may fit."""
        if demand.application_max < demand.batch_size:
            most = f"a limit of {demand.application_max} on application {demand.application}"
            return _above(f"{demand.batch_size} executors", most)
        gang = f" for {demand.batch_size} executors" if demand.batch_size > 1 else ""
        return limit_of(self._queues, demand.queue, self.unit(demand) * demand.batch_size, gang)

    def unit(self, demand: Demand) -> Resources:
        """Return the amounts of one executor of a demand."""
        unit, _ = self._room(demand)
        return unit

    def room(self, demand: Demand) -> int:
        """Return how many executors of a demand fit on the empty nodes."""
        _, room = self._room(demand)
        return room

    def _room(self, demand: Demand) -> tuple[Resources, int]:
        """Return the amounts of one executor, and how many fit on the empty nodes."""
        fleet, asked = self._empty.fleet, demand.requirement
        shape = shape_of(fleet, asked)
        known = self._rooms.get(shape)
        if known is None:
            known = self._rooms[shape] = fleet.resources(asked), int(self._empty.room(asked).sum())
        return known


def limit_of(queues: Mapping[str, Queue], name: str, unit: Resources, whose: str = "") -> Rejection | None:
    """Return the limit of a queue, or of the nearest one above it, that one unit alone exceeds; None if it may fit."""
    for queue in upwards(queues, name):
        broken = queue.limit.broken_by(unit)
        if broken != Limit():
            return _above(f"{broken.part_of(unit)}{whose}", f"a limit of {broken} on queue {queue.name}")
    return None


def _above(wanted: str, most: str) -> Rejection:
    return Rejection(Code.ABOVE_LIMIT, Cure.QUOTA, wanted=wanted, found=(most,))
