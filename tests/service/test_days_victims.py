"""Who deserves more gets it where others could give way: cases that days found."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node
from tests.service.test_executor_lives import slow

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.executor import BindCode
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.service.engine_port import ExecutorGone, NodeReported

ONE = ResourceRequirement.of(cpu=1)


def leaving(lab: Lab) -> list[str]:
    return sorted(each.session for each in lab.executors if each.phase is ExecutorPhase.LEAVING)


def test_a_gang_finds_its_victims_on_the_one_node_that_can_hold_it():
    """The newest of `a` are on the node that is too small for the gang."""
    with Lab(a_node("large", 16, gpus=2), a_node("small", 2, gpus=2)) as lab:
        lab.session("a", "cpu=1,gpu=1", tasks=4)
        for executor in lab.executors:
            executor.bound_at += executor.node == "small"
        lab.session("b", "cpu=2,gpu=1", tasks=2, batch_size=2)
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b")) == (2, 2)


def test_a_claim_finds_the_card_in_one_session_and_the_cpus_in_another():
    """The newest halves of `c` are on different cards, and a whole card is free only with both of one."""
    with Lab(a_node(cpu=8, gpus=2)) as lab:
        lab.session("a", tasks=4)
        lab.session("c", "cpu=1,gpu=0.5", tasks=4)
        seen = set()
        for executor in lab.executors:
            executor.bound_at += bool(seen.intersection(executor.gpus))
            seen.update(executor.gpus)
        lab.session("b", "cpu=3,gpu=1", tasks=1)
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b"), lab.held("c")) == (3, 1, 2)


def test_a_session_at_its_maximum_claims_room_while_its_own_executor_leaves():
    """One of `a` goes to `b`. Then `a` deserves two again: it waits for the grace once, and never has three."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4, max_instances=2)
        lab.session("c", tasks=4)
        assert (lab.held("a"), lab.held("c")) == (2, 2)
        lab.session("b", tasks=2, priority=5)
        assert leaving(lab) == ["a", "c"]
        lab.service.sessions.update("a", {"priority": 5}, lambda: None)
        lab.pump()
        assert leaving(lab) == ["a", "c", "c"]
        assert sum(each.session == "a" for each in lab.executors) == 2
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b"), lab.held("c")) == (2, 2, 0)


def test_a_member_without_a_task_does_not_wait_for_those_of_its_gang_that_are_ended():
    """Told to give way to one that deserves nothing, it would stay in the next cycle, and so on."""
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=2, batch_size=2)
        slow(lab, ExecutorGone)
        first, second = lab.executors
        lab.engine.finish(first.id)
        lab.pump()
        lab.service.sessions.cancel("a", lambda: None)
        lab.pump()
        assert (first.phase, second.phase) == (ExecutorPhase.VACANT, ExecutorPhase.ENDING)
        lab.session("b", tasks=2)
        assert lab.held("b") == 1


def test_room_that_is_promised_to_a_session_in_its_pause_counts_below_the_limit_of_its_queue():
    """Else others would leave for `b`, and the limit refuse it once `a` goes on."""
    queues = (Queue("default"), Queue("tight", limit=Limit(cpu_milli=2000)))
    with Lab(a_node(cpu=6), policy=Policy(reclaim_grace_s=0, protected_s=60), queues=queues) as lab:
        lab.session("other", tasks=6)
        lab.engine.bind_code["a"] = BindCode.ENTER_FAILED
        lab.session("a", "cpu=2", tasks=1, queue="tight", priority=5)
        lab.pass_time(0)
        assert lab.held("a") == 0
        assert lab.service.state.promises["a"].paid
        lab.service.sessions.create("b", SessionSpec("function", ONE, queue="tight", min_instances=1), lambda: None)
        lab.session("c", min_instances=2)
        reclaimed = [event.data for event in lab.service.events.recent if event.kind == "executor.reclaimed"]
        assert {event["claimant"] for event in reclaimed} == {"a", "c"}


def test_a_session_that_deserves_nothing_ends_no_executor_that_leaves_its_session_anyway():
    """Its task ends when it ends: asked to give way in one cycle, it would stay in the next, and so on."""
    fleet = Fleet([a_node(cpu=1)])
    fleet.charge(Allocation("e", "n1", ONE))
    late = Demand("late", 1, ONE, pending=1, waiting_since=0.0)
    world = World(fleet, (late,), (ExecutorView("e", ExecutorPhase.LEAVING, ONE, "a"),))
    plan = schedule(world, Policy(reserve_after_s=60), 100.0, deserved={"late": 0})
    assert plan.actions == ()
    assert plan.reserved["late"]


@pytest.mark.parametrize("where", ["n1", "n3"])
def test_victims_of_a_limit_leave_where_the_room_is_needed(where):
    """`a` has one executor on each node, `b` needs the room of that on `n1`; the newest of `a` is on `n2`.

    Of the three that the limit counts two have to leave, that of `c` is one of them.
    """
    queues = (Queue("default"), Queue("tight", limit=Limit(cpu_milli=3000)))
    with Lab(a_node("n1", 2), policy=Policy(reclaim_grace_s=0), queues=queues) as lab:
        lab.session("a", tasks=1, queue="tight", priority=5)
        if where == "n1":
            lab.session("c", tasks=1, queue="tight")
        lab.now += 1
        lab.service.nodes.cordon("n1", True)
        lab.service.on_engine_event(NodeReported(a_node("n2", 1)))
        lab.submit("a", 1)
        if where == "n3":
            lab.service.on_engine_event(NodeReported(a_node("n3", 1)))
            lab.session("c", tasks=1, queue="tight")
        lab.service.nodes.cordon("n1", False)
        lab.pump()
        assert sorted((each.session, each.node) for each in lab.executors) == [("a", "n1"), ("a", "n2"), ("c", where)]
        lab.session("b", "cpu=2", tasks=1, queue="tight", priority=5)
        lab.pass_time(0)
        assert sorted((each.session, each.node) for each in lab.executors) == [("a", "n2"), ("b", "n1")]
