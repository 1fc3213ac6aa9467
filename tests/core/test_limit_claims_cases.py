"""Single cases of executors that are reclaimed for the limit of a queue."""

from __future__ import annotations

from dataclasses import replace

from tests.books import GIB, frozen
from tests.core.test_reclaim import world_of
from tests.core.test_reclaim_cases import ids
from tests.core.test_reclaim_ways import Cycle

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.limit_claims import LimitClaims
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

ONE = ResourceRequirement.of(cpu=1)
BUSY, VACANT = ExecutorPhase.BUSY, ExecutorPhase.VACANT


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


def test_after_room_is_made_others_leave_for_what_the_limit_still_needs():
    """The first may lose one: the newest leaves for the limit but gives no room, so that the other one makes it."""
    held = [
        (ExecutorView("a0", BUSY, ONE, "a", bound_at=1.0), "n", ()),
        (ExecutorView("a1", BUSY, ONE, "a", bound_at=2.0), "m", ()),
        (ExecutorView("b0", BUSY, ONE, "b"), "m", ()),
    ]
    asked = ResourceRequirement.from_string("cpu=1,mem=2g")
    demands = [
        Demand("a", 1, ONE, 0, 2, queue="q", min_instances=1),
        Demand("b", 2, ONE, 0, 1, queue="q"),
        Demand("claim", 3, asked, 1, queue="q"),
    ]
    world = world_of([Node("m", 2000, GIB), Node("n", 1000, 4 * GIB)], demands, *held)
    world = replace(world, queues=(Queue("default"), Queue("q", limit=Limit(cpu_milli=2000))))
    cycle = Cycle(world)
    reclaim = Reclaim(world, cycle.tree, cycle.leaves, {})
    found = LimitClaims(world.fleet, reclaim, cycle.tree, cycle.leaves).claim(cycle.claim(demands[2]))
    assert found is not None
    assert (ids((found.for_room, ())), ids((found.for_limit, ()))) == (["a0"], ["b0"])
    assert cycle.outlook.fleet.ledger.keys() == {"a1", found.places[0].id}


def test_where_the_room_costs_what_the_limit_needs_nobody_leaves():
    """Both are of a queue whose guarantee lets one of them go: one for the limit of its application, one for room."""
    asked = ResourceRequirement.from_string("cpu=1,mem=2g")
    limited = {"application": "X", "application_max": 1}
    demands = [
        Demand("for the limit", 1, ONE, 0, 1, queue="r", **limited),
        Demand("for room", 2, ONE, 0, 1, queue="r"),
        Demand("claim", 3, asked, 1, **limited),
    ]
    held = [
        (ExecutorView("e0", BUSY, ONE, "for the limit", application="X"), "m", ()),
        (ExecutorView("e1", BUSY, ONE, "for room"), "n", ()),
    ]
    world = world_of([Node("m", 1000, GIB), Node("n", 1000, 4 * GIB)], demands, *held)
    for guarantee, leave in ((0, True), (1000, False)):
        queues = Queue("default"), Queue("r", guarantee=Resources(cpu_milli=guarantee))
        cycle = Cycle(replace(world, queues=queues))
        reclaim, before = (
            Reclaim(replace(world, queues=queues), cycle.tree, cycle.leaves, {}),
            frozen(cycle.outlook.fleet),
        )
        found = LimitClaims(world.fleet, reclaim, cycle.tree, cycle.leaves).claim(cycle.claim(demands[2]))
        assert (found is not None) is leave
        assert [reclaim.taken(uid) for uid in ("e0", "e1")] == [leave, leave]
        assert (frozen(cycle.outlook.fleet) == before) is not leave
