"""Nobody is evicted in vain, and no session that deserves more waits for long: on random days, and in known cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab import Lab, a_node
from tests.service.days.day import run_days
from tests.service.test_executor_lives import slow

from ullage.core.placing.policy import Policy
from ullage.core.sharing.plan import EvictExecutor
from ullage.core.sharing.world import ExecutorPhase
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.service.engine_port import ExecutorGone, Unbound


@pytest.mark.parametrize("seed", [1, 3, 11, 16])
def test_each_eviction_of_a_day_has_a_winner_that_starts_and_keeps_its_room(seed):
    tally = run_days([seed], 600.0)
    assert tally.violations == []
    assert tally.claimed
    assert tally.starts


def test_a_session_whose_own_executor_stays_gets_the_room_of_its_victims():
    """One gives way to an overdue session, and another one to its own: the latter's room serves the overdue one."""
    tally = run_days([100063], 290.0)
    assert tally.violations == []
    assert tally.kept


def test_a_claim_looks_beyond_victims_that_do_not_help():
    """The newest executors are on the node without cards."""
    with Lab(a_node("g", 2, gpus=1), a_node("p", 2)) as lab:
        lab.session("b", tasks=8)
        assert lab.held("b") == 4
        lab.session("a", "cpu=1,gpu=1", tasks=1)
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b")) == (1, 3)


def test_a_claim_of_a_whole_card_takes_those_that_share_one():
    """The two newest halves are on different cards."""
    with Lab(a_node("n1", 8, gpus=2)) as lab:
        lab.session("b", "cpu=1,gpu=0.5", tasks=8)
        cards = [executor.gpus[0] for executor in lab.executors]
        for executor, age in zip(lab.executors, (4, 1, 3, 2), strict=True):
            executor.bound_at -= age if cards[0] == cards[1] else 0
        lab.session("a", "cpu=1,gpu=1", tasks=1)
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b")) == (1, 2)


@pytest.mark.parametrize("priority", [0, 1])
def test_executors_without_a_task_are_no_bar_to_an_equal_session(priority):
    with Lab(a_node(cpu=8)) as lab:
        lab.session("a", tasks=8)
        lab.finish("a", 8)
        assert lab.held("a") == 8
        lab.session("b", tasks=8, priority=priority)
        assert (lab.held("a"), lab.held("b")) == (0, 8)


def overdue(lab: Lab) -> None:
    """Twelve cards held by small sessions; one that wants eight of them waits too long."""
    for number in range(6):
        lab.session(f"old{number}", "cpu=1,gpu=1", tasks=3)
    lab.session("large", "cpu=1,gpu=8", tasks=1, priority=1)
    for number in range(7):
        lab.session(f"new{number}", "cpu=1,gpu=1", tasks=3)


def test_a_session_that_waited_long_keeps_its_room_for_the_protected_time():
    with Lab(a_node("n1", 64, gpus=12), policy=Policy(reserve_after_s=60, protected_s=50)) as lab:
        overdue(lab)
        lab.pass_time(30)
        assert lab.held("large") == 1
        (executor,) = (each for each in lab.executors if each.session == "large")
        for number in range(5):
            lab.session(f"later{number}", "cpu=1,gpu=2", tasks=3, priority=2)
            lab.pass_time(9)
            assert executor.phase is ExecutorPhase.BUSY


def test_tasks_on_executors_that_give_way_count_as_demand_of_their_session():
    """Else a session would deserve what others have only while they leave."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("b", tasks=4)
        assert (lab.deserved("a"), lab.deserved("b")) == (2, 2)
        reports = slow(lab, ExecutorGone)
        lab.pass_time(30)
        assert (lab.deserved("a"), lab.deserved("b")) == (2, 2)
        reports.let_through(lab)
        assert (lab.held("a"), lab.held("b")) == (2, 2)


def events(lab: Lab, kind: str) -> Iterator[dict[str, object]]:
    return (event.data for event in lab.service.events.recent if event.kind == kind)


def test_a_victim_stays_once_the_winner_has_ended():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("b", tasks=4)
        assert lab.held("a") == 2
        lab.service.sessions.cancel("b", lambda: None)
        lab.pump()
        assert lab.held("a") == 4
        lab.pass_time(100)
        assert lab.counts("a")["running"] == 4
        assert len(list(events(lab, "executor.kept"))) == 2
        lab.finish("a", 4)
        assert lab.counts("a")["succeed"] == 4


def test_no_executor_is_ended_for_a_winner_whose_node_was_cordoned_meanwhile():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("b", tasks=4)
        lab.service.nodes.cordon("n1", True)
        lab.pass_time(20)
        lab.pass_time(20)
        assert lab.counts("a")["running"] == 4
        assert not list(events(lab, "executor.evicted"))
        lab.service.nodes.cordon("n1", False)
        lab.pump()
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b")) == (2, 2)


def test_an_eviction_names_the_winner_and_the_cause():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("b", tasks=4)
        lab.pass_time(30)
        reported = [
            event for event in lab.service.events.recent if event.kind in ("executor.reclaimed", "executor.evicted")
        ]
        assert [(event.code, event.session) for event in reported] == [(1003, "a")] * 2 + [(1004, "a")] * 2
        assert {event.message for event in reported} == {
            "gives way to b: its session holds more than it deserves, and the other less"
        }
        assert {(event.data["claimant"], event.data["cause"]) for event in reported} == {("b", "share")}


def test_tasks_within_their_share_are_not_ended_for_one_that_deserves_nothing():
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=5, reserve_after_s=60)) as lab:
        lab.session("a", tasks=3)
        lab.session("b", tasks=3)
        lab.pass_time(10)
        lab.session("wide", "cpu=2", tasks=1)
        lab.pass_time(61)
        lab.pass_time(1000)
        assert (lab.counts("a")["running"], lab.counts("b")["running"]) == (1, 1)
        lab.finish("a")
        assert (lab.counts("a")["running"], lab.counts("b")["running"]) == (0, 1)
        lab.finish("b")
        assert lab.held("wide") == 1
        lab.pass_time(50)
        assert lab.held("wide") == 1


def test_an_eviction_passes_to_the_session_that_takes_over_the_room():
    """The first winner no longer deserves the room once a session of higher priority asks for all."""
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=2)
        lab.session("b", tasks=1)
        (leaver,) = (each for each in lab.executors if each.phase is ExecutorPhase.LEAVING)
        since = leaver.eviction.since
        lab.pass_time(10)
        lab.session("c", tasks=2, priority=5)
        assert (leaver.eviction.winner, leaver.eviction.since) == ("c", since)
        assert {event["claimant"] for event in events(lab, "executor.reclaimed")} == {"b", "c"}
        reports = slow(lab, ExecutorGone)
        lab.pass_time(20)
        assert {event["claimant"] for event in events(lab, "executor.evicted")} == {"c"}
        assert lab.service.state.promises["c"].paid
        assert "b" not in lab.service.state.promises
        reports.let_through(lab)
        assert lab.held("c") == 1


def test_an_executor_that_leaves_by_itself_pays_the_promise_of_the_last_winner():
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=2)
        lab.session("b", tasks=1)
        lab.session("c", tasks=2, priority=5)
        reports = slow(lab, Unbound)
        lab.finish("a", 1)
        assert lab.service.state.promises["c"].paid
        assert "b" not in lab.service.state.promises
        reports.let_through(lab)
        assert lab.held("c") >= 1


def test_no_allocation_stays_on_a_card_that_the_winner_cannot_share():
    """There is room for a partition beside the winner, but no card has both."""
    cards = tuple(
        Gpu(f"GPU-{index}", index, model="NVIDIA A100-SXM4-40GB", vram_bytes=40 << 30, compute_gflops=312_000)
        for index in range(2)
    )
    with Lab(Node("n1", 8000, 64 << 30, cards), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", "cpu=1,vram=20g,tflops=5,isolation=partitioned", tasks=4)
        assert lab.held("a") == 4
        lab.session("b", "cpu=1,gpu=0.25,isolation=hard", tasks=1)
        assert not list(events(lab, "executor.kept"))
        lab.pass_time(30)
        assert (lab.held("a"), lab.held("b")) == (2, 1)


def test_an_executor_that_dies_while_it_gives_way_pays_the_promise():
    """`b` has its room, whatever it deserves from then on."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("b", "cpu=2", tasks=1)
        first, _ = (each for each in lab.executors if each.phase is ExecutorPhase.LEAVING)
        lab.engine.kill(first.id)
        lab.pump()
        assert lab.service.state.promises["b"].paid
        lab.session("c", tasks=4, priority=5)
        assert lab.deserved("b") == 0
        lab.pass_time(30)
        assert lab.held("b") == 1


def test_a_later_winner_does_not_take_the_room_that_an_earlier_one_waits_for():
    """`wide` needs the room of two. One has left; `late`, for which another has yet to leave, would fit there."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("wide", "cpu=2", tasks=1)
        first, second = (each for each in lab.executors if each.phase is ExecutorPhase.LEAVING)
        lab.session("late", tasks=1)
        assert list(lab.service.state.promises) == ["wide", "late"]
        assert [each.eviction.winner for each in lab.executors if each.eviction].count("late") == 1
        lab.service.executors.evict(EvictExecutor(first.id, first.eviction))
        lab.pump()
        assert (lab.held("wide"), lab.held("late")) == (0, 0)
        lab.service.executors.evict(EvictExecutor(second.id, second.eviction))
        lab.pump()
        assert (lab.held("wide"), lab.held("late")) == (1, 0)
        lab.pass_time(30)
        assert (lab.held("wide"), lab.held("late")) == (1, 1)


def test_an_executor_without_a_task_leaves_in_the_place_of_one_that_works():
    """`c` is to give way to `b`. Then `a` runs out of work: its executor goes, and no task of `c` is ended."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=2)
        lab.session("c", tasks=2)
        lab.session("b", tasks=1)
        assert [each.session for each in lab.executors if each.phase is ExecutorPhase.LEAVING] == ["c"]
        lab.finish("a")
        assert (lab.held("b"), lab.counts("c")["running"]) == (1, 2)
        lab.pass_time(31)
        assert lab.counts("c")["running"] == 2
        assert not list(events(lab, "executor.evicted"))


@pytest.mark.parametrize("grace", [None, 30.0])
def test_the_executor_whose_task_ends_first_leaves_in_the_place_of_its_sibling(grace):
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=grace)) as lab:
        lab.session("a", tasks=8, task_timeout_s=1e6)  # one task at a time
        lab.session("b", tasks=2)
        for number in (1, 2):
            others = (each for each in lab.executors if each.session == "a" and each.phase is ExecutorPhase.BUSY)
            lab.engine.finish(next(others).id)
            lab.pump()
            assert (lab.held("a"), lab.held("b")) == (2, number)
        assert lab.counts("a")["running"] == 2
        assert lab.counts("a")["succeed"] == 2
        assert not [each for each in lab.executors if each.phase is ExecutorPhase.LEAVING]


def test_a_sibling_is_fed_while_its_room_is_protected():
    """It was won: without a task it could be claimed at once."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30, protected_s=60)) as lab:
        lab.session("a", tasks=8, task_timeout_s=1e6)
        won = [each for each in lab.executors if each.session == "a"][2:]
        for executor in won:
            executor.protected_until = lab.now + 60
        lab.session("b", tasks=2)
        for executor in won:
            lab.engine.finish(executor.id)
            lab.pump()
            assert executor.phase is ExecutorPhase.BUSY
        assert (lab.held("a"), lab.held("b")) == (2, 0)


def test_work_does_not_start_in_room_that_a_winner_waits_for_in_exchange_for_later_leavers():
    """`wide` waits for two of `a`, and `late` for all of `large`, of which half is left over."""
    with Lab(a_node(cpu=8), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("a", tasks=4)
        lab.session("large", "cpu=4", tasks=1)
        lab.session("wide", "cpu=2", tasks=1, priority=5)
        first, _ = (each for each in lab.executors if each.phase is ExecutorPhase.LEAVING)
        lab.pass_time(20)
        lab.session("late", tasks=2, priority=5)
        assert sorted(each.session for each in lab.executors if each.phase is ExecutorPhase.LEAVING) == [
            "a",
            "a",
            "large",
        ]
        lab.engine.finish(first.id)
        lab.pump()
        lab.session("small", tasks=1)
        lab.pass_time(10)
        assert (lab.held("wide"), lab.held("late"), lab.held("small")) == (1, 0, 0)
        lab.pass_time(20)
        assert (lab.held("wide"), lab.held("late"), lab.held("small")) == (1, 2, 1)


def test_room_whose_executor_fails_is_protected_no_longer_than_it_was():
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=0, protected_s=60)) as lab:
        lab.session("a", tasks=2)
        lab.session("b", tasks=1)
        lab.pass_time(0)
        (won,) = (each for each in lab.executors if each.session == "b")
        until = won.protected_until
        lab.pass_time(40)
        lab.engine.kill(won.id)
        lab.pump()
        (again,) = (each for each in lab.executors if each.session == "b")
        assert again.id != won.id
        assert again.protected_until == until
