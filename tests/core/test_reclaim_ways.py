"""Whom a claim of a session evicts, in any world, against slow code that tries every way."""

from __future__ import annotations

from collections import Counter
from math import inf

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import GIB, NOW, frozen
from tests.core.slow_reclaim import SlowReclaim

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import Loser, RoomClaim, cards_to_free, may_do
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves, application_limits, place_unit
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

HELD = ("cpu=1", "cpu=1,mem=8g", "cpu=1,gpu=1", "cpu=1,gpu=0.5", "cpu=1,gpu=0.3", "cpu=2,gpu=0.5")
CLAIMED = ("cpu=1", "cpu=2", "cpu=1,mem=12g", "cpu=1,gpu=1", "cpu=1,gpu=2", "cpu=2,gpu=0.5")


@st.composite
def any_worlds(draw: st.DrawFn) -> tuple[World, dict[str, int]]:
    """Sessions on full nodes, and what each deserves; some are closed, or in a queue with a guarantee."""
    fleet = Fleet(
        Node(f"n{n}", 8000, 64 * GIB, tuple(Gpu(f"n{n}-{k}", k) for k in range(cards)))
        for n, cards in enumerate(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    )
    placer, views, demands = Placer(fleet, Policy(strategy=draw(st.sampled_from(["best-fit", "spread"])))), [], []
    for number in range(draw(st.integers(1, 4))):
        demand = Demand(
            f"s{number}",
            number,
            ResourceRequirement.from_string(draw(st.sampled_from(HELD))),
            priority=draw(st.sampled_from([0, 0, 1])),
            batch_size=draw(st.sampled_from([1, 1, 1, 2])),
            min_instances=draw(st.sampled_from([0, 0, 1])),
            queue=draw(st.sampled_from(["default", "default", "other"])),
        )
        views += executors(draw, placer, demand)
        if draw(st.sampled_from([True, True, False])):
            demands.append(demand)
    for row, node in enumerate(fleet.nodes):
        cpu, memory = fleet.cpu_free.item(row), fleet.memory_free.item(row)
        left, left_bytes = draw(st.sampled_from([0, 0, 1000])), draw(st.sampled_from([4, 4, 16])) * GIB
        others = ResourceRequirement(max(0, cpu - left), max(1, memory - left_bytes))
        fleet.charge(Allocation(f"others on {node.name}", node.name, others))
    asked, batch = ResourceRequirement.from_string(draw(st.sampled_from(CLAIMED))), draw(st.integers(1, 3))
    demands.append(Demand("claim", 9, asked, 9, priority=draw(st.integers(0, 1)), batch_size=batch))
    deserved = {demand.session: draw(st.sampled_from([0, 0, 1, 2, 4])) for demand in demands}
    queues = Queue("default"), Queue("other", guarantee=Resources(cpu_milli=draw(st.sampled_from([0, 2000, 4000]))))
    return World(fleet, tuple(demands), tuple(views), queues), deserved


def executors(draw: st.DrawFn, placer: Placer, demand: Demand) -> list[ExecutorView]:
    """Place up to so many units of a session; some executors of it leave by themselves."""
    views: list[ExecutorView] = []
    for unit in range(draw(st.integers(0, 7))):
        gang = f"{demand.session}/{unit}" if demand.batch_size > 1 else None
        for allocation in place_unit(placer, demand, f"{demand.session}/{unit}", demand.batch_size) or ():
            phase = draw(st.sampled_from(AT_WORK if gang else [*AT_WORK, ExecutorPhase.LEAVING]))
            until = draw(st.sampled_from([0.0, 0.0, 0.0, NOW, NOW + 1]))
            facts = {"bound_at": float(draw(st.integers(0, 3))), "protected_until": until, "since": float(unit % 3)}
            views.append(ExecutorView(allocation.id, phase, demand.requirement, demand.session, gang, **facts))
    return views


AT_WORK = [ExecutorPhase.BUSY] * 3 + [ExecutorPhase.VACANT, ExecutorPhase.STARTING]


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


@settings(max_examples=60)
@given(any_worlds(), st.booleans())
def test_a_node_is_passed_over_exactly_if_all_that_may_leave_it_is_too_little(any_world, displace):
    """And a card, exactly if somebody has to stay on it, or nobody who leaves is there."""
    world, deserved = any_world
    cycle = Cycle(world)
    claim = cycle.claim(next(demand for demand in world.demands if demand.session == "claim"), displace=displace)
    slow, fleet, asked = SlowReclaim(world, cycle.tree, cycle.leaves, deserved), world.fleet, claim.claimant.requirement
    losers = {session: Loser(slow.held[session], left) for session, left in slow.may_lose(claim).items()}
    for row in range(len(fleet.nodes)):
        victims = [each for each in slow.willing(claim) if row in slow.rows(fleet, each)]
        gone, lost = list[ExecutorView](), Counter[str | None]()
        for victim in victims:
            if victim.session is None or lost[victim.session] + len(victim.members) <= losers[victim.session].left:
                lost[victim.session] += len(victim.members)
                gone += victim.members
        freed = sum((each.requirement.resources for each in gone), Resources())
        of = {member.id: victim.session for victim in victims for member in victim.members}
        cards = []
        for card in fleet.cards_on(row):
            going = Counter(of[uid] for uid in fleet.holders[card] if uid in of)
            all_go = going.total() == len(fleet.holders[card])
            if asked.whole and all_go and all(n <= losers[s].left for s, n in going.items() if s is not None):
                cards.append(card)
            if not asked.whole and going:
                cards.append(card)
        enough = fleet.cpu_free[row] + freed.cpu_milli >= asked.cpu_milli
        enough = enough and fleet.memory_free[row] + freed.memory_bytes >= asked.memory_bytes
        if asked.whole and asked.gpu_count:
            whole = fleet.gpu_free[row] + sum(each.requirement.gpu_count for each in gone)
            enough = enough and whole >= asked.gpu_count and len(cards) >= asked.gpu_count
        assert list(cards_to_free(claim, row, victims, losers)) == cards
        assert may_do(claim, row, victims, losers) == (enough or claim.claimant.batch_size > 1)
