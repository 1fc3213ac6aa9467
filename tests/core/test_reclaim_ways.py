"""The victims of a claim of a session, in any world, against slow code that tries every way."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any
from unittest import mock

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.books import GIB, NOW, frozen
from tests.core.slow_reclaim import SlowReclaim, everybody

from ullage.core.books.fleet import Fleet
from ullage.core.evicting import reclaim
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import Loser, RoomClaim, Ways, cards_to_free, may_do, shared
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves, application_limits
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, World
from ullage.core.verdict.cards import charges_on, refusal_of
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

HELD = ("cpu=1", "cpu=1,mem=8g", "cpu=1,gpu=1", "cpu=1,gpu=0.5", "cpu=1,gpu=0.3", "cpu=2,gpu=0.5")
CLAIMED = ("cpu=2", "cpu=3", "cpu=1,mem=12g", "cpu=2,gpu=1", "cpu=1,gpu=1", "cpu=1,gpu=2", "cpu=2,gpu=0.5")
PAIRS = (
    ("cpu=1", "cpu=2"),
    ("cpu=1", "cpu=3"),
    ("cpu=1,mem=8g", "cpu=1,mem=20g"),
    ("cpu=1,gpu=1", "cpu=1,gpu=2"),
    ("cpu=1,gpu=0.5", "cpu=2,gpu=1"),
    ("cpu=1,gpu=0.3", "cpu=2,gpu=0.6"),
    ("cpu=1,gpu=0.3", "cpu=1,gpu=1"),
    ("cpu=1,gpu=0.3", "cpu=1,gpu=2"),
)
"""What executors hold, and a claim that needs several of them on one node or card."""
AT_WORK = [ExecutorPhase.BUSY] * 3 + [ExecutorPhase.VACANT, ExecutorPhase.STARTING]


def a_world(seed: int) -> tuple[World, dict[str, int]]:
    """Sessions on full nodes, and what each deserves; some are closed, or in a queue with a guarantee.

    In most worlds they may lose little, so that a claim for which the first victims are of no use looks elsewhere.
    """
    rng = Random(seed)
    tight = rng.random() < 0.75
    holds, claims = ((text,) for text in rng.choice(PAIRS)) if tight else (HELD, CLAIMED)
    sizes = [rng.randint(1, 3) for _ in range(rng.choice([2, 3, 4] if tight else [1, 2, 3]))]
    fleet = Fleet(
        Node(f"n{n}", 8000, 64 * GIB, tuple(Gpu(f"n{n}-{k}", k) for k in range(cards))) for n, cards in enumerate(sizes)
    )
    views, demands = list[ExecutorView](), list[Demand]()
    for number in range(rng.randint(1, 2 if tight else 4)):
        demand = Demand(
            f"s{number}",
            number,
            ResourceRequirement.from_string(rng.choice(holds)),
            priority=rng.choice([0, 0, 1]),
            weight=rng.choice([1, 1, 3]),
            batch_size=rng.choice([1, 1, 1, 2]),
            queue=rng.choice(["default", "default", "other"]),
        )
        for unit in range(rng.randint(5 if tight else 1, 8)):
            views += executors(rng, fleet, demand, unit)
        if rng.random() < 0.7:
            demands.append(demand)
    for row, node in enumerate(fleet.nodes):
        cpu = fleet.cpu_free.item(row) - (0 if tight else rng.choice([0, 0, 1000]))
        memory = fleet.memory_free.item(row) - rng.choice([4, 4, 16]) * GIB
        others = ResourceRequirement(max(0, cpu), max(1, memory))
        fleet.charge(Allocation(f"others on {node.name}", node.name, others))
    asked, batch = ResourceRequirement.from_string(rng.choice(claims)), rng.choice([1, 1, 1, 1, 2, 3])
    demands.append(Demand("claim", 9, asked, 9, priority=rng.randint(0, 1), batch_size=batch))
    held = Counter(view.session for view in views)
    most = [1, 2, 2, 3] if tight else [1, 3, 9]
    deserved = {each.session: max(0, held[each.session] - rng.choice(most)) for each in demands}
    least = {each.session: rng.choice([0, deserved[each.session]]) for each in demands}
    demands = [replace(each, min_instances=least[each.session]) for each in demands]
    queues = Queue("default"), Queue("other", guarantee=Resources(cpu_milli=1000 * rng.choice([0, 2, 3, 5])))
    return World(fleet, tuple(demands), tuple(views), queues), deserved


def executors(rng: Random, fleet: Fleet, demand: Demand, unit: int) -> list[ExecutorView]:
    """Place a unit of a session on any nodes; some executors leave by themselves."""
    views: list[ExecutorView] = []
    gang = f"{demand.session}/{unit}" if demand.batch_size > 1 else None
    for rank in range(demand.batch_size):
        nodes = list(fleet.nodes)
        rng.shuffle(nodes)
        asked, uid = demand.requirement, f"{demand.session}/{unit}/{rank}"
        for node in nodes:
            row = fleet.row_of[node.name]
            able = [card for card in fleet.cards_on(row) if refusal_of(fleet, card, asked) is None]
            if len(able) >= asked.gpu_count and fleet.cpu_free[row] >= asked.cpu_milli:
                cards = rng.sample(able, asked.gpu_count)
                charges = charges_on(fleet, cards, asked)
                fleet.charge(Allocation(uid, node.name, asked, fleet.uuids(cards), charges=charges))
                phase = rng.choice(AT_WORK if gang else [*AT_WORK, ExecutorPhase.LEAVING])
                facts = {"protected_until": rng.choice([0.0, 0.0, 0.0, NOW, NOW + 1]), "since": float(unit % 3)}
                facts["bound_at"] = float(rng.randint(0, 5))
                views.append(ExecutorView(uid, phase, asked, demand.session, gang, **facts))
                break
    return views


any_worlds = st.integers(0, 10**9).map(a_world)


def in_the_first_worlds(*facts: Iterable[object]) -> Callable[[Any], Any]:
    """Have a property tried in the first worlds too, however few examples it has; with facts in turn."""

    def more(test: Any) -> Any:
        for seed, each in zip(range(24), zip(*map(itertools.cycle, facts), strict=True), strict=False):
            test = example(a_world(seed), *each)(test)
        return test

    return more


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


@in_the_first_worlds([False, True, True], [NOW, inf])
@settings(max_examples=150)
@given(any_worlds, st.booleans(), st.sampled_from([NOW, NOW, inf]))
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


@in_the_first_worlds([False, True, True], [NOW, inf])
@settings(max_examples=80)
@given(any_worlds, st.booleans(), st.sampled_from([NOW, inf]))
def test_each_way_asks_the_victims_that_slow_code_asks(any_world, displace, now):
    world, deserved = any_world
    cycle = Cycle(world)
    fleet, tree, leaves = world.fleet, cycle.tree, cycle.leaves
    claim = cycle.claim(next(each for each in world.demands if each.session == "claim"), displace=displace, now=now)
    slow, losers = SlowReclaim(world, tree, leaves, deserved), dict[str, Loser]()
    for session, left in slow.may_lose(claim).items():
        losers[session] = Loser(slow.held[session], left)
        if (demand := slow.demands.get(session)) is not None:
            deserves = tree.leaf_share(leaves[session], deserved[session] // demand.batch_size)
            facts = leaves[session], deserves, demand.queue != claim.claimant.queue
            losers[session] = Loser(slow.held[session], left, demand, *facts)
    ways, willing = Ways(claim, tree, losers), slow.willing(claim)
    by_session = {session: slow.victims_of(session) for session in losers}
    assert list(ways.in_order(slow.alone(), by_session, everybody)) == list(slow.in_order(claim))
    for rows in (*({row} for row in range(len(fleet.nodes))), set(range(len(fleet.nodes)))):
        victims = [each for each in willing if rows & slow.rows(fleet, each)]
        assert list(ways.card_by_card(victims, sorted(rows))) == slow.card_by_card(claim, victims, rows)
        assert list(map(list, ways.around([victims]))) == list(slow.around_each(claim, victims))[:64]


@in_the_first_worlds([False, True])
@settings(max_examples=150)
@given(any_worlds, st.booleans())
def test_where_no_way_makes_room_a_claim_tries_all_of_them(any_world, displace):
    """One after the other: in order, whole cards, nodes, cards, and each victim with those near it."""
    world, deserved = any_world
    fast, slow = Cycle(world), Cycle(world)
    claimant = next(each for each in world.demands if each.session == "claim")
    tried, size, fewest = list[list[ExecutorVictim]](), claimant.batch_size, reclaim.fewest

    def too_few(outlook: Placer, each: Demand, victims: Iterable[ExecutorVictim], name: str) -> object:
        if each.batch_size < size:  # members of a gang may find room, one after the other
            return fewest(outlook, each, victims, name)
        tried.append(list(victims))
        return None

    everywhere = mock.patch.object(reclaim, "may_suffice", return_value=True)
    with mock.patch.object(reclaim, "fewest", too_few), everywhere:
        found = Reclaim(world, fast.tree, fast.leaves, deserved).claim(fast.claim(claimant, displace=displace))
    assert found is None
    ways = SlowReclaim(world, slow.tree, slow.leaves, deserved).ways(slow.claim(claimant, displace=displace))
    event(f"{len(tried)} ways")
    assert tried == list(map(list, ways))


@in_the_first_worlds([0, 3, 1, 4, 2], [0, 0, 1])
@settings(max_examples=150)
@given(any_worlds, st.integers(0, 9), st.integers(0, 1))
def test_executors_without_a_task_leave_in_the_place_of_some_that_work_or_nothing_changes(any_world, which, more):
    """They were to leave for the claimant; where they cannot stay, all is as if that had not been tried."""
    world, deserved = any_world
    sessions = {demand.session for demand in world.demands}
    at_work = [each for each in world.executors if each.phase is ExecutorPhase.BUSY and each.session in sessions]
    if not at_work:
        return
    one = at_work[which % len(at_work)]
    goes = {"phase": ExecutorPhase.LEAVING, "eviction": Eviction("claim", Cause.SHARE, NOW), "may_stay": True}
    gang = [each for each in world.executors if each is one or (one.gang is not None and each.gang == one.gang)]
    views = tuple(replace(each, **goes) if each in gang else each for each in world.executors)
    world, names = replace(world, executors=views), ["first"] * more
    staying = [each for each in views if each.id in {member.id for member in gang}]
    fast, slow = Cycle(world), Cycle(world)
    claimant = next(demand for demand in world.demands if demand.session == "claim")
    taking = Reclaim(world, fast.tree, fast.leaves, deserved)
    for cycle in (fast, slow):
        for each in staying:
            cycle.outlook.fleet.release(each.id)
    before = [victim.ids for victim in taking.in_order(fast.claim(claimant))]
    mark, marked = fast.outlook.fleet.checkpoint(), frozen(fast.outlook.fleet)
    wanted = SlowReclaim(world, slow.tree, slow.leaves, deserved).claim_vacant(slow.claim(claimant), names, staying)
    found = taking.claim_vacant(fast.claim(claimant), names, staying)
    event("nobody" if found is None else f"{len(found[0])} victims")
    assert (None if found is None else list(found[0])) == wanted
    assert fast.tree.executors() == slow.tree.executors()
    if found is None:
        fast.outlook.fleet.rollback(mark)
        assert frozen(fast.outlook.fleet) == marked
        assert [victim.ids for victim in taking.in_order(fast.claim(claimant))] == before
    else:
        victims, placed = found
        gone = {uid for victim in victims for uid in victim.ids}
        ids = {uid for uid in world.fleet.ledger if uid not in gone} | {place.id for unit in placed for place in unit}
        assert fast.outlook.fleet.ledger.keys() == ids
        assert [len(unit) for unit in placed] == [claimant.batch_size] * (more + 1)


@in_the_first_worlds([False, True])
@settings(max_examples=60)
@given(any_worlds, st.booleans())
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
        held = [charge for card in fleet.cards_on(row) for charge in fleet.holders[card].values()]
        assert shared(fleet, row) == (len(held) > held.count(None))
        assert may_do(claim, row, victims, losers) == (enough or claim.claimant.batch_size > 1)
