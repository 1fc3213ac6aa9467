"""What watches the days finds what must not happen."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node
from tests.service.days import day as a_day
from tests.service.days import run_days
from tests.service.days.room import Room
from tests.service.days.tally import Tally
from tests.service.days.watch import SLACK_S, Watch
from tests.service.test_executor_lives import slow

from ullage.core.placing.policy import Policy
from ullage.model.queue import Limit, Queue
from ullage.model.resources import Resources
from ullage.service.engine_port import ExecutorBound, ExecutorGone, Registered, Unbound

NOBODY_LEAVES = Policy(min_runtime_s=1e9)
SAFE, SMALL = Queue("safe", guarantee=Resources(cpu_milli=2000)), Queue("small", limit=Limit(cpu_milli=2000))
QUEUES = (Queue("default"), SAFE, SMALL)


def could_be_had(lab: Lab, session: str, **deserved: int) -> bool:
    return Room(lab.service.loop.world(), deserved, session).could_be_had()


def test_a_day_that_does_not_come_to_rest_is_a_violation_and_the_next_day_runs(monkeypatch):
    monkeypatch.setattr(a_day, "_ROUNDS", 0)
    tally = run_days([1, 2], 60.0)
    assert tally.days == 2
    assert [violation.split(" ")[1] for violation in tally.violations] == ["1", "2"]
    assert all("Restless" in violation for violation in tally.violations)


@pytest.mark.parametrize(("keeps", "could"), [(2, True), (3, False)])
def test_a_gang_waits_for_executors_on_several_nodes(keeps, could):
    with Lab(a_node("n1", 2), a_node("n2", 2), policy=NOBODY_LEAVES) as lab:
        lab.session("a", tasks=4)
        lab.session("b", tasks=2, batch_size=2)
        assert could_be_had(lab, "b", a=keeps, b=2) is could


@pytest.mark.parametrize(("keeps", "could"), [(2, True), (3, False)])
def test_a_gang_gives_way_as_a_whole(keeps, could):
    with Lab(a_node(cpu=4), policy=NOBODY_LEAVES) as lab:
        lab.session("a", tasks=4, batch_size=2)
        lab.session("b", tasks=1)
        assert could_be_had(lab, "b", a=keeps, b=1) is could


@pytest.mark.parametrize(("queue", "could"), [("default", True), ("safe", False)])
def test_a_session_of_another_queue_gives_way_down_to_its_guarantee(queue, could):
    with Lab(a_node(cpu=2), policy=NOBODY_LEAVES, queues=QUEUES) as lab:
        lab.session("a", tasks=2, queue=queue)
        lab.session("b", tasks=1)
        assert could_be_had(lab, "b", a=0, b=1) is could


@pytest.mark.parametrize(("same", "other", "could"), [(1, 2, True), (2, 0, False)])
def test_a_limit_is_left_by_sessions_of_its_queue_only(same, other, could):
    with Lab(a_node(cpu=4), policy=NOBODY_LEAVES, queues=QUEUES) as lab:
        lab.session("a", tasks=2, queue="small")
        lab.session("c", tasks=2)
        lab.session("b", tasks=1, queue="small")
        assert could_be_had(lab, "b", a=same, c=other, b=1) is could


class LabDay:
    """What happens in a lab, as a day."""

    seed, all_nodes_known = 1, True

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.service, self.policy, self.failing = lab.service, lab.service.policy, set[str]()

    @property
    def now(self) -> float:
        return self._lab.now


def watched(lab: Lab) -> tuple[Watch, Tally]:
    tally = Tally()
    return Watch(LabDay(lab), tally), tally


def test_a_session_that_was_cancelled_meanwhile_lost_nothing_for_a_winner_that_does_not_start():
    """While `a` gives way to `b`, it is cancelled, and `c` deserves all."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as lab:
        watch, tally = watched(lab)
        lab.session("a", tasks=4)
        lab.session("b", tasks=2)
        watch.look()
        reports = slow(lab, ExecutorGone)
        lab.service.sessions.cancel("a", lambda: None)
        lab.session("c", min_instances=4, priority=5)
        assert "b" not in lab.service.state.promises
        watch.look()
        reports.let_through(lab, 1)
        watch.look()
        assert tally.violations == []


def test_a_wait_begins_again_when_another_session_wins_the_room():
    """`b` deserves the whole node, and waits for both executors of `a`; one of them is won after 50 s."""
    with Lab(a_node(cpu=2), policy=Policy(protected_s=60, reclaim_grace_s=3)) as lab:
        watch, tally = watched(lab)
        lab.session("a", tasks=2)
        lab.session("b", "cpu=2", tasks=1)
        sessions = lab.service.state.sessions
        sessions["a"].deserved, sessions["b"].deserved = 0, 1
        watch.look()
        lab.now += 50
        executor = lab.executors[0]
        executor.winner, executor.bound_at, executor.protected_until = "a", lab.now, lab.now + 60
        watch.look()
        lab.now += 1
        watch.look()
        lab.now += 60 + 3 + SLACK_S
        watch.look()
        assert tally.violations == []
        lab.now += 1
        watch.look()
        assert tally.violations == ["day 1 at 1125.00: b deserves 1, and waits since 1051.00"]


def test_a_session_waits_no_longer_than_until_it_is_overdue_whatever_others_win():
    """One executor of `a` or the other is won anew every 50 s."""
    with Lab(a_node(cpu=2), policy=Policy(protected_s=60, reclaim_grace_s=3, reserve_after_s=100)) as lab:
        watch, tally = watched(lab)
        lab.session("a", tasks=2)
        lab.session("b", "cpu=2", tasks=1)
        sessions = lab.service.state.sessions
        sessions["a"].deserved, sessions["b"].deserved = 0, 1
        watch.look()
        for _ in range(4):
            assert tally.violations == []
            lab.now += 50
            executor = lab.executors[0]
            executor.winner, executor.bound_at, executor.protected_until = "a", lab.now, lab.now + 60
            watch.look()
        assert tally.violations == ["day 1 at 1200.00: b deserves 1, and waits since 1000.00"]


def test_a_session_loses_won_room_without_a_task_also_if_one_comes_while_it_leaves():
    with Lab(a_node(cpu=2), policy=Policy(protected_s=60, reclaim_grace_s=3)) as lab:
        watch, tally = watched(lab)
        lab.session("a", tasks=4)
        lab.session("b", "cpu=1,mem=1g", tasks=1)
        reports = slow(lab, Registered)
        lab.pass_time(3)
        watch.look()
        assert next(iter(lab.service.state.session("b").executors.values())).winner == "b"
        reports.let_through(lab)
        reports = slow(lab, Unbound)
        lab.finish("b")
        lab.submit("b", 1)
        reports.let_through(lab)
        watch.look()
        left = [event.session for event in lab.service.events.recent if event.kind == "executor.left"]
        assert left == ["b"]
        assert tally.violations == []


def test_in_the_place_of_a_lost_executor_the_protection_may_be_over_before_the_session_has_another_one():
    """It is taken in the very step in which it is bound."""
    with Lab(a_node(cpu=2), policy=Policy(protected_s=60, reclaim_grace_s=3)) as lab:
        watch, tally = watched(lab)
        lab.session("a", tasks=4)
        lab.session("b", "cpu=1,mem=1g", tasks=2)
        lab.pass_time(3)
        watch.look()
        lab.pass_time(59)
        reports = slow(lab, ExecutorBound)
        lost = next(iter(lab.service.state.session("b").executors))
        watch.killed(lost)
        lab.engine.kill(lost)
        lab.pump()
        watch.look()
        lab.now += 2
        lab.service.sessions.update("a", {"priority": 5}, lambda: None)
        reports.let_through(lab)
        watch.look()
        claimed = [event.session for event in lab.service.events.recent if event.kind == "executor.reclaimed"]
        assert claimed == ["a", "b"]
        assert tally.violations == []
