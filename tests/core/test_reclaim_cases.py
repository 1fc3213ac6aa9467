"""Single cases of who gives way to a session: claims that are alike, parts of cards, gangs, and cards given twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import GIB, frozen
from tests.core.test_reclaim import NOW, reclaim_of, world_of
from tests.core.test_reclaim_ways import Cycle

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.limit_claims import LimitClaims
from ullage.core.evicting.pending_evictions import PendingEvictions
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import Loser, RoomClaim, may_do
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.evicting.surplus import surplus
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.promise import Promises
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation, Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement

ONE = ResourceRequirement.of(cpu=1)
BUSY, VACANT = ExecutorPhase.BUSY, ExecutorPhase.VACANT


def claim_of(world: World, claimant: Demand, **facts: object) -> RoomClaim:
    outlook = Placer(Fleet(world.fleet.nodes, world.fleet.ledger.values()), Policy())
    return RoomClaim(claimant, outlook, Placer(outlook.fleet.emptied(), Policy()), now=NOW, name="new", **facts)


def ids(found: tuple[tuple[ExecutorVictim, ...], object] | None) -> list[str] | None:
    return None if found is None else [member.id for victim in found[0] for member in victim.members]


# --- what one claim did not find ---


@pytest.mark.parametrize("first", ["holds", "has nothing"])
def test_what_a_session_does_not_find_another_may_find_among_its_executors(first):
    """Its own executors are no victims, so that it finds nobody; those are victims for the other."""
    held = [(ExecutorView(f"e{n}", BUSY, ONE, "holds"), "n", ()) for n in range(2)]
    sessions = [Demand("holds", 1, ONE, 1, 2), Demand("has nothing", 2, ONE, 1)]
    world = world_of([Node("n", 2000, GIB)], sessions, *held)
    reclaim, found = reclaim_of(world), {}
    for demand in sessions if first == "holds" else reversed(sessions):
        found[demand.session] = ids(reclaim.claim(claim_of(world, demand, displace=True)))
    assert found == {"holds": None, "has nothing": ["e0"]}


def test_what_a_session_that_holds_some_does_not_find_another_that_holds_some_may_find():
    """The other keeps its minimum, so that only executors of the first may go, which are none for itself."""
    held = [(ExecutorView(f"{name}{n}", BUSY, ONE, name), "n", ()) for name in "ab" for n in range(2)]
    sessions = [Demand("a", 1, ONE, 1, 2), Demand("b", 2, ONE, 1, 2, min_instances=2)]
    world = world_of([Node("n", 4000, GIB)], sessions, *held)
    reclaim = reclaim_of(world)
    found = [ids(reclaim.claim(claim_of(world, demand, displace=True))) for demand in sessions]
    assert found == [None, ["a0"]]


def test_what_a_claim_does_not_find_none_of_its_kind_looks_for_again_but_others_do():
    """Others are those of another size, priority or queue, and those that displace."""
    held = [(ExecutorView(f"e{n}", BUSY, ONE, "holds"), "n", ()) for n in range(2)]
    sessions = [
        Demand("holds", 1, ONE, 0, 2, min_instances=1, priority=2),
        Demand("wide", 2, ResourceRequirement.of(cpu=2), 1),
        Demand("wide too", 3, ResourceRequirement.of(cpu=2), 1),
        Demand("small", 4, ONE, 1),
        Demand("higher", 5, ResourceRequirement.of(cpu=2), 1, priority=2),
    ]
    world = world_of([Node("n", 2000, GIB)], sessions, *held)
    reclaim = reclaim_of(world)
    wide, again, small, higher = (claim_of(world, demand) for demand in sessions[1:])
    assert ids(reclaim.claim(wide)) is None
    looks = []
    reclaim._search = lambda claim: looks.append(claim.claimant.session)
    for claim in (again, wide, higher, replace(wide, displace=True), replace(wide, now=NOW + 1)):
        assert reclaim.claim(claim) is None
    assert looks == ["higher", "wide", "wide"]
    del reclaim._search
    assert ids(reclaim.claim(small)) == ["e0"]


# --- what a node can give ---


def test_a_node_with_a_part_to_spare_is_not_passed_over_where_nobody_who_leaves_holds_a_card():
    """The claim asks for a part of a card, which is free, and for a core, which the victim has."""
    fleet = Fleet([Node("n", 1000, GIB, (Gpu("g", 0),))])
    fleet.charge(Allocation("e", "n", ONE))
    fleet.charge(Allocation("other", "n", ResourceRequirement.from_string("gpu=0.5"), ("g",), charges=(Charge(1, 1),)))
    world = World(fleet, (Demand("s", 1, ONE, 0, 1),), (ExecutorView("e", BUSY, ONE, "s"),))
    victim = ExecutorVictim(world.executors, "s", busy=True)
    for text, expected in (("cpu=1,gpu=0.5", True), ("cpu=1,gpu=1", False), ("cpu=2,gpu=0.5", False), ("cpu=1", True)):
        claim = claim_of(world, Demand("claim", 2, ResourceRequirement.from_string(text), 1))
        assert may_do(claim, 0, [victim], {"s": Loser(1, 1)}) is expected


# --- who has no task for too long ---


@pytest.mark.parametrize(
    ("phases", "since", "leaves"),
    [
        pytest.param((VACANT, VACANT), (0.0, 0.0), ["a", "b"], id="all have none"),
        pytest.param((VACANT, BUSY), (0.0, 0.0), [], id="one works"),
        pytest.param((BUSY, VACANT), (0.0, 0.0), [], id="the other works"),
        pytest.param((VACANT, VACANT), (0.0, NOW - 1), [], id="one only just now"),
        pytest.param((VACANT, VACANT), (NOW - 1, 0.0), [], id="the other only just now"),
    ],
)
def test_a_gang_leaves_once_none_of_its_members_has_a_task_for_long_enough(phases, since, leaves):
    views = [
        ExecutorView(name, phase, ONE, "s", "g", since=at) for name, phase, at in zip("ab", phases, since, strict=True)
    ]
    demand = Demand("s", 1, ONE, running=2, batch_size=2, delay_release_s=500.0)
    found = surplus(demand, views, lambda _uid: False, lambda at: at <= NOW)
    assert [view.id for view in found] == leaves


# --- those that give way already ---


@pytest.mark.parametrize(
    ("other", "may_stay", "found"),
    [
        pytest.param(Eviction("w", Cause.SHARE), True, True, id="both for it"),
        pytest.param(Eviction("x", Cause.SHARE), True, False, id="one for another session"),
        pytest.param(Eviction("w", Cause.LIMIT), True, False, id="one for a limit"),
        pytest.param(Eviction("w", Cause.SHARE), False, False, id="the task of one has ended"),
    ],
)
def test_a_gang_leaves_for_the_share_of_a_session_if_all_of_its_members_do(other, may_stay, found):
    one = ExecutorView("e0", ExecutorPhase.LEAVING, ONE, "s", "g", eviction=Eviction("w", Cause.SHARE), may_stay=True)
    views = [one, replace(one, id="e1", eviction=other, may_stay=may_stay)]
    world = world_of([Node("n", 2000, GIB)], [Demand("s", 1, ONE)], *((view, "n", ()) for view in views))
    pending = PendingEvictions(world, Promises(world, lambda _at: False), None)
    assert pending.at_work_for("w") == ([views] if found else [])


def test_of_gangs_of_one_size_on_one_node_the_first_to_join_is_asked():
    goes = Eviction("w", Cause.SHARE)
    facts = {"eviction": goes, "may_stay": True}
    held = [
        (ExecutorView(uid, ExecutorPhase.LEAVING, asked, session, bound_at=at, **facts), node, ())
        for uid, asked, session, at, node in (
            ("late", ONE, "s", 2.0, "n"),
            ("first", ONE, "s", 1.0, "n"),
            ("elsewhere", ONE, "s", 3.0, "m"),
            ("larger", ResourceRequirement.of(cpu=2), "s", 4.0, "n"),
            ("of another", ONE, "t", 5.0, "n"),
        )
    ]
    world = world_of([Node("n", 9000, GIB), Node("m", 1000, GIB)], [Demand("s", 1, ONE), Demand("t", 2, ONE)], *held)
    found = PendingEvictions(world, Promises(world, lambda _at: False), None).at_work_for("w")
    assert [[each.id for each in gang] for gang in found] == [["first"], ["elsewhere"], ["larger"], ["of another"]]


# --- limits ---


def card_given_twice(limit: int, claimed: str) -> tuple[World, dict[str, int]]:
    """Return two executors on one whole card, in a queue with a limit of cores, and a claim of its queue."""
    card, cards = ResourceRequirement.from_string("cpu=1,gpu=1"), (Gpu("g", 0),)
    fleet = Fleet([Node("n", 4000, GIB, cards)])
    for uid in ("e0", "e1"):
        fleet.charge(Allocation(uid, "n", card, ("g",)), force=True)
    views = tuple(ExecutorView(uid, BUSY, card, "s", bound_at=float(n)) for n, uid in enumerate(("e0", "e1")))
    asked = ResourceRequirement.from_string(claimed)
    demands = Demand("s", 1, card, 0, 2, queue="q"), Demand("claim", 2, asked, 1, queue="q")
    return World(fleet, demands, views, (Queue("default"), Queue("q", limit=Limit(cpu_milli=limit)))), {"s": 0}


def test_who_stays_after_all_is_back_on_a_card_that_was_given_twice():
    """Both leave for the limit, and even then there is no room: the node has no two cards."""
    world, deserved = card_given_twice(2000, "cpu=1,gpu=2")
    cycle = Cycle(world)
    reclaim, before = Reclaim(world, cycle.tree, cycle.leaves, deserved), frozen(cycle.outlook.fleet)
    assert LimitClaims(world.fleet, reclaim, cycle.tree, cycle.leaves).claim(cycle.claim(world.demands[1])) is None
    assert frozen(cycle.outlook.fleet) == before
    assert not any(reclaim.taken(uid) for uid in ("e0", "e1"))


def test_who_leaves_for_room_is_counted_out_as_well_as_who_leaves_for_a_limit():
    """The newest is in the queue that the limit counts; the room is made by an executor of another queue."""
    wide = ResourceRequirement.of(cpu=2)
    held = [
        (ExecutorView("in the queue", BUSY, ONE, "s", bound_at=1.0), "m", ()),
        (ExecutorView("has room", BUSY, wide, "t"), "n", ()),
    ]
    demands = [Demand("s", 1, ONE, 0, 1, queue="q"), Demand("t", 2, wide, 0, 1), Demand("claim", 3, wide, 1, queue="q")]
    world = world_of([Node("m", 1000, GIB), Node("n", 2000, GIB)], demands, *held)
    world = replace(world, queues=(Queue("default"), Queue("q", limit=Limit(cpu_milli=2000))))
    cycle = Cycle(world)
    reclaim = Reclaim(world, cycle.tree, cycle.leaves, {})
    found = LimitClaims(world.fleet, reclaim, cycle.tree, cycle.leaves).claim(cycle.claim(demands[2]))
    assert found is not None
    assert [[each.id for victim in group for each in victim.members] for group in found[:2]] == [
        ["has room"],
        ["in the queue"],
    ]
    assert reclaim.taken("has room")
    assert reclaim.taken("in the queue")
    assert [victim.ids for victim in reclaim.in_order(cycle.claim(demands[2]))] == []


def test_who_leaves_for_room_may_be_enough_for_the_limit_too():
    """The session may lose one executor: the newest is where the claim has no room, so the other one leaves."""
    held = [(ExecutorView(f"e{n}", BUSY, ONE, "s", bound_at=float(n)), f"n{n}", ()) for n in range(2)]
    asked = ResourceRequirement.from_string("cpu=1,mem=2g")
    demands = [Demand("s", 1, ONE, 0, 2, queue="q", min_instances=1), Demand("claim", 2, asked, 1, queue="q")]
    world = world_of([Node("n0", 1000, 4 * GIB), Node("n1", 1000, GIB)], demands, *held)
    world = replace(world, queues=(Queue("default"), Queue("q", limit=Limit(cpu_milli=2000))))
    cycle = Cycle(world)
    reclaim = Reclaim(world, cycle.tree, cycle.leaves, {})
    found = LimitClaims(world.fleet, reclaim, cycle.tree, cycle.leaves).claim(cycle.claim(demands[1]))
    assert found is not None
    assert (ids((found.for_room, ())), found.for_limit) == (["e0"], ())
    assert [reclaim.taken(uid) for uid in ("e0", "e1")] == [True, False]
