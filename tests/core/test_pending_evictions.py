"""Single cases of executors that give way already: what they count for, and which of them stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import GIB
from tests.core.test_reclaim import NOW, world_of

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.evicting.pending_evictions import PendingEvictions
from ullage.core.placing.policy import Policy
from ullage.core.sharing.plan import Keep
from ullage.core.sharing.promise import Promises
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, Promise
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

ONE = ResourceRequirement.of(cpu=1)
BUSY, VACANT = ExecutorPhase.BUSY, ExecutorPhase.VACANT


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


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        pytest.param({}, ["busy"], id="one for a share"),
        pytest.param({"gang": "g"}, [], id="one of a gang"),
        pytest.param({"may_stay": False}, [], id="one whose task has ended"),
        pytest.param({"eviction": Eviction("w", Cause.LIMIT)}, [], id="one for a limit"),
        pytest.param({"eviction": Eviction("w", Cause.OVERDUE)}, [], id="one for a session that waits too long"),
    ],
)
def test_others_do_as_well_as_one_that_goes_if_it_goes_alone_for_a_share_with_a_task(facts, found):
    goes = ExecutorView("goes", ExecutorPhase.LEAVING, ONE, "s", eviction=Eviction("w", Cause.SHARE), may_stay=True)
    views = replace(goes, **facts), ExecutorView("busy", BUSY, ONE, "s")
    demands = [Demand("s", 1, ONE), Demand("w", 2, ONE, 1)]
    world = world_of([Node("n", 2000, GIB)], demands, *((view, "n", ()) for view in views))
    world = replace(world, promises={"w": Promise((Allocation("p", "n", ONE),))})
    plan = schedule(world, Policy(), NOW, deserved={"s": 1, "w": 1})
    assert plan.yielding == set(found)


def test_of_those_that_stay_nothing_is_decided_any_more():
    goes = {"eviction": Eviction("w", Cause.SHARE), "may_stay": True}
    views = [ExecutorView(uid, ExecutorPhase.LEAVING, ONE, "s", **goes) for uid in ("stays", "goes")]
    world = world_of([Node("n", 2000, GIB)], [Demand("s", 1, ONE)], *((view, "n", ()) for view in views))
    pending, outlook = PendingEvictions(world, Promises(world, lambda _at: False), None), Fleet(world.fleet.nodes)
    assert pending.stay([views[0]]) == [Keep("stays")]
    assert list(pending.settle(outlook, lambda _at: False)) == [Keep("goes")]


@pytest.mark.parametrize(
    ("cause", "winner", "stays"),
    [
        pytest.param(Cause.LIMIT, "w", False, id="for a limit of one that counts on it"),
        pytest.param(Cause.LIMIT, "gone", True, id="for a limit of one that does not any more"),
        pytest.param(Cause.SHARE, "w", True, id="for a share, and there is room for both"),
    ],
)
def test_who_leaves_for_a_limit_goes_though_there_is_room_as_long_as_the_winner_counts_on_it(cause, winner, stays):
    goes = ExecutorView("goes", ExecutorPhase.LEAVING, ONE, "s", eviction=Eviction(winner, cause), may_stay=True)
    world = world_of([Node("n", 2000, GIB)], [Demand("s", 1, ONE), Demand("w", 2, ONE, 1)], (goes, "n", ()))
    promises, outlook = Promises(world, lambda _at: False), Fleet(world.fleet.nodes)
    assert promises.hold("w", (Allocation("p", "n", ONE),), outlook)
    found = list(PendingEvictions(world, promises, None).settle(outlook, lambda _at: False))
    assert (Keep("goes") in found) is stays
    assert ("goes" in outlook.ledger) is stays


@pytest.mark.parametrize("causes", [(Cause.SHARE, Cause.LIMIT), (Cause.LIMIT, Cause.SHARE), (Cause.LIMIT, Cause.LIMIT)])
def test_a_gang_goes_if_one_of_its_members_leaves_for_a_limit(causes):
    held = [
        (ExecutorView(uid, ExecutorPhase.LEAVING, ONE, "s", "g", eviction=Eviction("w", cause)), "n", ())
        for uid, cause in zip("ab", causes, strict=True)
    ]
    world = world_of([Node("n", 3000, GIB)], [Demand("s", 1, ONE), Demand("w", 2, ONE, 1)], *held)
    promises, outlook = Promises(world, lambda _at: False), Fleet(world.fleet.nodes)
    assert promises.hold("w", (Allocation("p", "n", ONE),), outlook)
    assert not list(PendingEvictions(world, promises, None).settle(outlook, lambda _at: False))


def test_a_gang_joined_when_the_first_of_its_members_did():
    goes = {"eviction": Eviction("w", Cause.SHARE), "may_stay": True}
    held = [
        (ExecutorView(uid, ExecutorPhase.LEAVING, ONE, "s", gang, bound_at=at, **goes), "n", ())
        for uid, gang, at in (("a", "late", 2.0), ("b", "late", 3.0), ("c", "first", 9.0), ("d", "first", 1.0))
    ]
    world = world_of([Node("n", 4000, GIB)], [Demand("s", 1, ONE, batch_size=2)], *held)
    found = PendingEvictions(world, Promises(world, lambda _at: False), None).at_work_for("w")
    assert [[each.id for each in gang] for gang in found] == [["c", "d"]]
