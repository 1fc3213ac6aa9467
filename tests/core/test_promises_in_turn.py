"""Who starts while others wait for places that were promised to them: nobody waits longer for it."""

from __future__ import annotations

from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.plan import Keep, Plan, Start
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, Promise, World
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement

ONE = ResourceRequirement.of(cpu=1)
GRACE_S = 30.0


def leaves(name: str, winner: str, since: float) -> ExecutorView:
    eviction = Eviction(winner, Cause.SHARE, since)
    return ExecutorView(name, ExecutorPhase.LEAVING, ONE, "old", eviction=eviction, may_stay=True)


def decide(cpus: int, executors: tuple[ExecutorView, ...], **promised: int) -> Plan:
    """Plan for sessions that were promised so many places, in this order; each place is one of a gang."""
    fleet = Fleet([a_node(cpu=cpus)])
    for executor in executors:
        fleet.charge(Allocation(executor.id, "n1", ONE))
    demands = tuple(
        Demand(name, number, ONE, pending=count, batch_size=count)
        for number, (name, count) in enumerate(promised.items())
    )
    places = {name: Promise((Allocation("", "n1", ONE),) * count) for name, count in promised.items()}
    world = World(fleet, demands, executors, promises=places)
    return schedule(world, Policy(reclaim_grace_s=GRACE_S), 20.0, deserved=promised)


def started(plan: Plan) -> list[str]:
    return [action.session for action in plan.actions if isinstance(action, Start)]


def stay(plan: Plan) -> list[str]:
    return [action.executor for action in plan.actions if isinstance(action, Keep)]


def test_nobody_takes_a_place_for_which_a_session_before_it_would_wait_for_one_that_leaves_later():
    """`a` waits for `early`; were `b` in the free place, it would wait for `late`. Both leave for `a` by now."""
    plan = decide(3, (leaves("early", "a", 0.0), leaves("late", "a", 19.0)), a=2, b=1)
    assert started(plan) == []
    assert set(plan.promised) == {"a", "b"}


def test_a_place_is_taken_if_the_session_before_it_waits_as_long_anyway():
    """`a` waits for both."""
    assert started(decide(4, (leaves("early", "b", 0.0), leaves("late", "b", 19.0)), a=3, b=1)) == []
    assert started(decide(3, (leaves("early", "b", 0.0), leaves("late", "a", 19.0)), b=1, a=2)) == ["b"]


def test_of_two_that_leave_the_later_one_stays():
    """Though it joined its session later: else `a` would wait for its grace."""
    executors = leaves("early", "a", 0.0), leaves("late", "a", 19.0)
    assert stay(decide(2, executors, a=1)) == ["late"]
