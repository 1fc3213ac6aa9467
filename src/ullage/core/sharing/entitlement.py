"""The entitlement of each session: progressive filling of the fleet without executors, computed from demand.

Filling places each unit on a real node, so that the entitlement can be reached: ten cards on two nodes are not one
node of ten. A unit that fits no empty node is left out and blocks no other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.queues import MOST
from ullage.core.kernel.reasons import LACKS_CPU, LACKS_MEMORY, LACKS_SLOT
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.shares import Leaf, ShareTree, Vector
from ullage.core.sharing.world import Demand, World
from ullage.core.verdict.cards import free_cards, open_cards
from ullage.core.verdict.nodes import lacking
from ullage.core.verdict.shape import Shape, shape_of
from ullage.core.verdict.zones import refusal_on
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


def entitlement(world: World, policy: Policy) -> dict[str, int]:
    """Return the executors that each session is entitled to; they depend on demand and inventory only."""
    empty = Placer(world.fleet.requested(), policy)
    leaves = Leaves(world.fleet)
    found = [leaves.of(demand, target=units_of_work(demand)) for demand in world.demands]
    demands = {demand.session: demand for demand in world.demands}
    tree = share_tree(world, policy, found)

    def grant(leaf: Leaf) -> Code | None:
        demand = demands[leaf.session]
        placed = place_unit(empty, demand, f"{leaf.session}/{leaf.held}", demand.batch_size)
        return shortage(empty.fleet, demand) if placed is None else None

    def fits(leaf: Leaf) -> bool:
        return has_room(empty, demands[leaf.session])

    trial = empty.fleet.checkpoint()
    tree.fill_floors(grant, same_shape=True)
    tree.fill_guarantees(grant, fits, same_shape=True)
    tree.fill(grant, fits, same_shape=True)
    empty.fleet.rollback(trial)
    return tree.executors()


def entitlement_key(world: World, policy: Policy) -> tuple[object, ...]:
    """Return a key of the entitlement: equal keys have equal ones. From cycle to cycle mostly usage changes."""
    empty = Placer(world.fleet.requested(), policy)
    rooms: dict[Shape, int] = {}
    wants = tuple(
        (
            d.session,
            _placeable_want(d, empty, rooms),
            d.floor,
            d.batch_size,
            d.requirement,
            d.queue,
            d.priority,
            d.weight,
        )
        for d in world.demands
    )
    return (
        world.fleet.nodes,
        world.fleet.claim_changes,
        world.queues,
        policy,
        wants,
        tuple(application_limits(world).items()),
    )


class KnownEntitlement:
    """The entitlement, which is computed again when what it depends on has changed."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._found: dict[str, int] = {}

    def of(self, world: World, policy: Policy) -> dict[str, int]:
        """Return the entitlement of a world."""
        if not world.demands:
            return {}
        key = entitlement_key(world, policy)
        if key != self._key:
            self._key, self._found = key, entitlement(world, policy)
        return self._found


def _placeable_want(demand: Demand, empty: Placer, rooms: dict[Shape, int]) -> int:
    """Return the work as far as it matters: at most one unit more than the empty fleet holds."""
    shape = shape_of(empty.fleet, demand.requirement)
    room = rooms.get(shape)
    if room is None:
        room = rooms[shape] = int(empty.room(demand.requirement).sum())
    return min(units_of_work(demand), room // demand.batch_size + 1)


def wanted_units(demand: Demand) -> int:
    """Return the units that a session can use now; 0 while it is held back."""
    return demand.want // demand.batch_size if demand.ready else 0


def units_of_work(demand: Demand) -> int:
    """Return the units that the unfinished tasks of a session ask for; 0 past its retry limit."""
    return demand.work // demand.batch_size if demand.competes else 0


def has_room(placer: Placer, demand: Demand) -> bool:
    """Return whether one unit of the demand fits; executors of one requirement do not conflict with each other."""
    return int(placer.room(demand.requirement).sum()) >= demand.batch_size


class Leaves:
    """The leaves of sessions in the share tree; counts are in units (whole batches)."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._units: dict[tuple[Shape, int], Vector] = {}

    def of(self, demand: Demand, *, target: int = 0, held: int = 0, leaving: int = 0, reuses: Hashable = None) -> Leaf:
        """Return a session's leaf; `reuses` are idle executors that it may use and others of its shape may not."""
        shape = shape_of(self._fleet, demand.requirement), demand.batch_size
        unit = self._units.get(shape)
        if unit is None:
            unit = self._units[shape] = vector(demand, self._fleet)
        return Leaf(
            demand.session,
            demand.queue,
            unit,
            priority=demand.priority,
            weight=demand.weight,
            number=demand.number,
            held=held,
            leaving=leaving,
            target=target,
            floor=demand.floor // demand.batch_size,
            application=demand.application,
            executors_per_unit=demand.batch_size,
            shape=(*shape, reuses),
        )


def vector(demand: Demand, fleet: Fleet) -> Vector:
    """Return the amounts of one unit, an executor or a whole batch, limited to the range of the tree."""
    unit = fleet.resources(demand.requirement) * demand.batch_size
    return (min(unit.cpu_milli, MOST), min(unit.memory_bytes, MOST), min(unit.gpu_milli, MOST))


def share_tree(world: World, policy: Policy, leaves: Iterable[Leaf]) -> ShareTree:
    """Return the queues of a world over these leaves, with nothing granted yet."""
    total = world.fleet.total
    return ShareTree(total, world.queues, leaves, policy.order, application_limits=application_limits(world))


def application_limits(world: World) -> Mapping[str, int]:
    """Return the executors that each application may have over all its sessions."""
    return {demand.application: demand.application_max for demand in world.demands}


def place_unit(
    placer: Placer,
    demand: Demand,
    name: str,
    count: int,
    also: Placer | None = None,
    closed: Iterable[int] = (),
) -> tuple[Allocation, ...] | None:
    """Charge `count` executors on `placer` (and `also`), none on `closed` nodes. Charge nothing if they do not fit."""
    fleets = [placer.fleet] if also is None else [placer.fleet, also.fleet]
    marks = [fleet.checkpoint() for fleet in fleets]
    placed: list[Allocation] = []
    for rank in range(count):
        allocation = placer.place(f"{name}/{rank}", demand.requirement, also, closed)
        if allocation is None:
            for fleet, mark in zip(fleets, marks, strict=True):
                fleet.rollback(mark)
            return None
        placed.append(allocation)
    for fleet, mark in zip(fleets, marks, strict=True):
        fleet.keep(mark)
    return tuple(placed)


def shortage(fleet: Fleet, demand: Demand) -> Code:
    """Return the dimension that is short: the one in which the fewest nodes have enough."""
    if not fleet.schedulable.any():
        return Code.NO_NODES
    asked = demand.requirement
    lacks, may_take = lacking(fleet, asked), fleet.schedulable & fleet.exclusion.allowed(asked.nodes)
    enough = {
        Code.GPU: free_cards(fleet, asked) >= asked.gpu_count if asked.gpu_count else None,
        Code.CPU: lacks & LACKS_CPU == 0 if asked.cpu_milli else None,
        Code.MEMORY: lacks & LACKS_MEMORY == 0 if asked.memory_bytes else None,
        Code.SLOTS: lacks & LACKS_SLOT == 0,
    }
    known = [nodes for nodes in enough.values() if nodes is not None]
    counts = {code: int((nodes & may_take).sum()) for code, nodes in enough.items() if nodes is not None}
    code = min(counts, key=lambda code: counts[code])
    if demand.batch_size > 1 and counts[code]:
        return Code.GANG_ROOM
    return _zones_short(fleet, asked, reduce(and_, known, may_take)) or code


def _zones_short(fleet: Fleet, asked: ResourceRequirement, nodes: npt.NDArray[np.bool_]) -> Code | None:
    """Return the refusal of zones on the first of these nodes, which have enough of all; None if there is none."""
    for row in np.flatnonzero(nodes).tolist():
        refusal = refusal_on(fleet, asked, row, open_cards(fleet, row, asked))
        return None if refusal is None else refusal.code
    return None
