"""Single cases of which executors a session reclaims: equal claims, parts of cards, gangs, and cards given twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import GIB
from tests.core.test_reclaim import NOW, reclaim_of, world_of
from tests.core.test_reclaim_ways import Cycle

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.idle import Idle
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import Loser, RoomClaim, may_do
from ullage.core.evicting.reclaim_victims import ExecutorVictim, fewest, room_without
from ullage.core.evicting.surplus import surplus
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation, Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
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


@pytest.mark.parametrize(("size", "first"), [(4, "b0"), (6, "a0")])
def test_who_holds_most_above_what_it_deserves_loses_first_whatever_the_size_of_its_batches(size, first):
    """The one holds its executors in pairs, the other one has five by themselves; both deserve none."""
    pairs = [(ExecutorView(f"a{n}", BUSY, ONE, "a", f"g{n // 2}"), "n", ()) for n in range(size)]
    single = [(ExecutorView(f"b{n}", BUSY, ONE, "b"), "n", ()) for n in range(5)]
    sessions = [Demand("a", 1, ONE, batch_size=2), Demand("b", 2, ONE), Demand("claim", 3, ONE, 1)]
    world = world_of([Node("n", 1000 * (size + 5), GIB)], sessions, *pairs, *single)
    found = ids(reclaim_of(world).claim(claim_of(world, sessions[2], displace=True)))
    assert found is not None
    assert found[0] == first


@pytest.mark.parametrize(
    ("deserved", "first"),
    [
        pytest.param({"a": 2, "b": 2}, "a0", id="the pairs are further above it"),
        pytest.param({"a": 4, "b": 2}, "b0", id="the others are"),
        pytest.param({"b": 0}, "a0", id="nothing is said of the one"),
        pytest.param({"a": 2}, "b0", id="nothing is said of the other"),
    ],
)
def test_what_a_session_deserves_is_in_executors(deserved, first):
    pairs = [(ExecutorView(f"a{n}", BUSY, ONE, "a", f"g{n // 2}"), "n", ()) for n in range(6)]
    single = [(ExecutorView(f"b{n}", BUSY, ONE, "b"), "n", ()) for n in range(5)]
    sessions = [Demand("a", 1, ONE, batch_size=2), Demand("b", 2, ONE), Demand("claim", 3, ONE, 1)]
    world = world_of([Node("n", 11_000, GIB)], sessions, *pairs, *single)
    found = ids(reclaim_of(world, deserved).claim(claim_of(world, sessions[2], displace=True)))
    assert found is not None
    assert found[0] == first


def test_what_is_left_of_a_gang_leaves_and_is_no_unit_of_its_session():
    """The session holds a gang of two, and one executor whose mate is gone."""
    views = [ExecutorView(uid, BUSY, ONE, "s", gang) for uid, gang in (("a", "g"), ("b", "g"), ("c", "h"))]
    world = world_of([Node("n", 3000, GIB)], [Demand("s", 1, ONE, batch_size=2)], *((view, "n", ()) for view in views))
    cycle = Cycle(world)
    reclaim = Reclaim(world, cycle.tree, cycle.leaves, {})
    left, gang = ExecutorVictim((views[2],), "s", busy=True), ExecutorVictim(tuple(views[:2]), "s", busy=True)
    before = cycle.tree.executors()
    reclaim.count_out([left])
    assert cycle.tree.executors() == before
    reclaim.count_out([gang])
    assert cycle.tree.executors() != before
    reclaim.count_out([gang, left], -1)
    assert cycle.tree.executors() == before
    assert not any(reclaim.taken(view.id) for view in views)


# --- idle executors ---


def test_idle_executors_count_on_nodes_that_take_work_only():
    views = [ExecutorView(uid, ExecutorPhase.IDLE, ONE) for uid in ("here", "closed", "gone", "unknown")]
    world = world_of(
        [Node("n", 1000, GIB), Node("m", 1000, GIB, cordoned=True)],
        [],
        *zip(views, ("n", "m", "x"), ((), (), ()), strict=False),
    )
    known = Idle(replace(world, executors=tuple(views)))
    assert [each.id for each in known] == ["here"]


def test_a_unit_takes_the_idle_executors_that_were_idle_last_and_no_more_than_it_needs():
    views = [
        ExecutorView(uid, ExecutorPhase.IDLE, ONE, since=since) for uid, since in zip("abcd", (3, 1, 4, 2), strict=True)
    ]
    known = Idle(world_of([Node("n", 4000, GIB)], [], *((view, "n", ()) for view in views)))
    pair = Demand("s", 1, ONE, batch_size=2)
    assert [each.id for each in known] == ["b", "d", "a", "c"]
    assert [each.id for each in known.warm(pair, lambda _each: True)] == ["c", "a"]
    assert [each.id for each in known.warm(pair, lambda each: each.id in "bda")] == ["a", "d"]
    assert [each.id for each in known.warm(pair, lambda each: each.id == "b")] == ["b"]


@pytest.mark.parametrize("many", [8, 9, 13])
def test_as_many_victims_as_a_claim_needs_are_found_each_with_its_own_card(many):
    """Few are looked at first. The others, which have no card, are asked before."""
    card = ResourceRequirement.from_string("gpu=1")
    held = [(ExecutorView(f"no card {n}", BUSY, ONE, "s"), "n", ()) for n in range(5)]
    held += [(ExecutorView(f"e{n}", BUSY, card, "s"), "n", (f"g{n}",)) for n in range(many)]
    world = world_of([Node("n", 9000, GIB, tuple(Gpu(f"g{n}", n) for n in range(many)))], [], *held)
    victims = [ExecutorVictim((view,), "s", busy=True) for view, *_ in held]
    for needed in (1, 4, many):
        claim = claim_of(world, Demand("claim", 2, ResourceRequirement.of(gpu=needed), 1))
        assert fewest(claim.outlook, claim.claimant, victims, "new") == victims[5 : 5 + needed]
    claim = claim_of(world, Demand("claim", 2, card, 1, batch_size=many + 1))
    assert fewest(claim.outlook, claim.claimant, victims, "new") is None


def test_who_is_on_a_node_that_is_not_known_gives_no_room():
    held = [(ExecutorView("lost", BUSY, ONE, "s"), "x", ()), (ExecutorView("here", BUSY, ONE, "s"), "n", ())]
    world = world_of([Node("n", 1000, GIB)], [], *held)
    victims = [ExecutorVictim((view,), "s", busy=True) for view, *_ in held]
    claim = claim_of(world, Demand("claim", 2, ONE, 1))
    assert fewest(claim.outlook, claim.claimant, victims[:1], "new") is None
    assert fewest(claim.outlook, claim.claimant, victims, "new") == victims[1:]


def test_a_card_gives_what_its_only_user_holds_and_not_all_of_it():
    """Two units of seven tenths do not fit on a card of which an executor has a half."""
    half = ResourceRequirement.from_string("gpu=0.5")
    fleet = Fleet([Node("n", 4000, GIB, (Gpu("g", 0, vram_bytes=16 * GIB, compute_gflops=100_000),))])
    fleet.charge(Allocation("e", "n", half, ("g",), charges=(Charge(50_000, 8 * GIB),)))
    world = World(fleet, (Demand("s", 1, half, 0, 1),), (ExecutorView("e", BUSY, half, "s"),))
    victim = ExecutorVictim(world.executors, "s", busy=True)
    for share, size, enough in ((0.7, 2, False), (0.7, 1, True), (0.5, 2, True), (0.4, 3, False)):
        claim = claim_of(world, Demand("w", 2, ResourceRequirement.from_string(f"gpu={share}"), 1, batch_size=size))
        assert fewest(claim.outlook, claim.claimant, [victim], "new") == ([victim] if enough else None)
        assert room_without(claim.outlook, claim.claimant, [victim]).tolist() == [int(1 // share)]


def test_no_two_claims_count_on_the_same_victims():
    held = [(ExecutorView(f"e{n}", BUSY, ONE, "s"), "n", ()) for n in range(2)]
    sessions = [Demand("s", 1, ONE, 0, 2), Demand("a", 2, ONE, 1), Demand("b", 3, ONE, 1)]
    world = world_of([Node("n", 2000, GIB)], sessions, *held)
    reclaim = reclaim_of(world)
    assert ids(reclaim.claim(claim_of(world, sessions[1]))) == ["e0"]
    assert [victim.ids for victim in reclaim.in_order(claim_of(world, sessions[2]))] == [{"e1"}]
    assert ids(reclaim.claim(claim_of(world, sessions[2]))) == ["e1"]


# --- what a node can give ---


def test_a_node_with_a_part_to_spare_is_not_passed_over_where_nobody_who_leaves_holds_a_card():
    """The claim asks for a part of a card, which is free, and for a core, which the victim has."""
    fleet = Fleet([Node("n", 1000, GIB, (Gpu("g", 0),))])
    fleet.charge(Allocation("e", "n", ONE))
    fleet.charge(Allocation("other", "n", ResourceRequirement.from_string("gpu=0.5"), ("g",), charges=(Charge(1, 1),)))
    world = World(fleet, (Demand("s", 1, ONE, 0, 1),), (ExecutorView("e", BUSY, ONE, "s"),))
    victim = ExecutorVictim(world.executors, "s", busy=True)
    fits = {"cpu=1,gpu=0.5": True, "cpu=1,gpu=1": False, "cpu=2,gpu=0.5": False, "cpu=1": True}
    fits |= {"cpu=1,mem=1g": True, f"mem={GIB + 1}": False}
    for text, expected in fits.items():
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


@pytest.mark.parametrize(("taken", "leaves"), [("", ["c", "d"]), ("c", []), ("d", []), ("a", [])])
def test_a_gang_of_which_one_leaves_already_counts_as_gone(taken, leaves):
    """Four executors in two gangs; the maximum is two."""
    views = [
        ExecutorView(uid, BUSY, ONE, "s", gang, bound_at=at)
        for uid, gang, at in zip("abcd", "gghh", (1, 1, 2, 2), strict=True)
    ]
    demand = Demand("s", 1, ONE, running=4, batch_size=2, max_instances=2)
    assert [each.id for each in surplus(demand, views, lambda uid: uid == taken, lambda _at: False)] == leaves
