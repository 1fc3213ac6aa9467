"""Whom a claim of a session evicts, in any world, against slow code that tries every way."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import frozen
from tests.core.slow_reclaim import SlowReclaim
from tests.core.test_reclaim import NOW, worlds

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves, application_limits
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import Demand, ExecutorPhase, World
from ullage.model.allocation import Allocation
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

SMALL = ("cpu=1", "cpu=1,gpu=1", "cpu=1,gpu=2", "cpu=2,gpu=0.5", "cpu=1,gpu=0.3")


@st.composite
def any_worlds(draw: st.DrawFn) -> tuple[World, dict[str, int]]:
    """Sessions with what they deserve; some are closed, of another queue with a guarantee, or have leaving executors."""
    world = draw(worlds(SMALL))
    guarantee = Resources(cpu_milli=1000 * draw(st.sampled_from([0, 0, 2, 4])))
    queues = Queue("default"), Queue("other", guarantee=guarantee)
    demands, views, deserved = list[Demand](), list(world.executors), dict[str, int]()
    for demand in world.demands:
        deserved[demand.session] = draw(st.sampled_from([0, 0, 1, 2, 4]))
        facts = {
            "queue": draw(st.sampled_from(["default", "other"])),
            "min_instances": draw(st.sampled_from([0, 0, 1])),
        }
        if demand.session == "claim" or draw(st.integers(0, 4)):
            demands.append(replace(demand, **facts))
    for at, view in enumerate(views):
        how = draw(st.integers(0, 11)) if view.gang is None else 0
        if how == 11:
            views[at] = replace(view, phase=ExecutorPhase.LEAVING, since=float(draw(st.integers(0, 3))))
        elif how == 10:
            views[at] = replace(view, phase=ExecutorPhase.STARTING)
    for row, node in enumerate(world.fleet.nodes):  # so that little fits without an eviction
        left = world.fleet.cpu_free.item(row)
        if draw(st.integers(0, 3)) and left:
            others = ResourceRequirement(cpu_milli=left)
            world.fleet.charge(Allocation(f"others on {node.name}", node.name, others))
    return replace(world, demands=tuple(demands), executors=tuple(views), queues=queues), deserved


class Cycle:
    """The share tree of a world, and an outlook on its books."""

    def __init__(self, world: World) -> None:
        held, made = world.held(), Leaves(world.fleet)
        self.leaves: dict[str, Leaf] = {
            demand.session: made.of(demand, held=len(held.get(demand.session, ())) // demand.batch_size)
            for demand in world.demands
        }
        leaves, limits = self.leaves.values(), application_limits(world)
        self.tree = ShareTree(world.fleet.total, world.queues, leaves, application_limits=limits)
        self.outlook = Placer(Fleet(world.fleet.nodes, world.fleet.ledger.values()), Policy())
        self.vacant = Placer(self.outlook.fleet.emptied(), Policy())

    def claim(self, claimant: Demand, **facts: object) -> RoomClaim:
        return RoomClaim(claimant, self.outlook, self.vacant, **{"now": NOW, "name": "new", **facts})


@settings(max_examples=150)
@given(any_worlds(), st.booleans(), st.sampled_from([NOW, NOW, inf]))
def test_a_claim_finds_the_victims_of_the_first_way_that_makes_room(any_world, displace, now):
    world, deserved = any_world
    fast, slow = Cycle(world), Cycle(world)
    claimant = next(demand for demand in world.demands if demand.session == "claim")
    facts = {"displace": displace, "now": now}
    wanted = SlowReclaim(world, slow.tree, slow.leaves, deserved).claim(slow.claim(claimant, **facts))
    found = Reclaim(world, fast.tree, fast.leaves, deserved).claim(fast.claim(claimant, **facts))
    event("nobody" if found is None else f"{len(found[0])} victims")
    assert (None if found is None else list(found[0])) == wanted
    assert fast.tree.executors() == slow.tree.executors()
    if found is None:
        assert frozen(fast.outlook.fleet) == frozen(slow.outlook.fleet)
