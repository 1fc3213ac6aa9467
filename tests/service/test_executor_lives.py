"""Executors, nodes and gangs: bound, reused, kept, let go, lost."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from tests.lab import Lab, a_node

from ullage.core.placing.policy import Policy
from ullage.model.application import Application
from ullage.model.error import NotFound
from ullage.model.executor import BindCode, ExecutorState
from ullage.model.node import NodeState
from ullage.model.rejection import Code
from ullage.model.session import RETRY_LIMIT, SessionSpec, Setup
from ullage.service.engine_port import (
    Completed,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    NodeLost,
    Registered,
    Unbound,
)
from ullage.service.store_port import Page


class Slow(deque):
    """Reports of one kind arrive only when they are let through."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind
        self.kept: list[EngineEvent] = []

    def append(self, event: EngineEvent) -> None:
        if isinstance(event, self.kind):
            self.kept.append(event)
        else:
            super().append(event)

    def let_through(self, lab: Lab, count: int | None = None) -> None:
        arrived, self.kept = self.kept[:count], self.kept[len(self.kept) if count is None else count :]
        self.extend(arrived)
        lab.pump()


def slow(lab: Lab, kind: type) -> Slow:
    lab.engine.events = Slow(kind)
    return lab.engine.events


def nothing() -> None:
    pass


def events(lab: Lab, name: str = "s") -> list[tuple[str, int | None, str]]:
    return [(event.kind, event.code, event.message) for event in lab.store.events(Page(0, 10_000), name)]


def launched(lab: Lab) -> int:
    return len(lab.engine.launched)


def only(lab: Lab):
    (executor,) = lab.executors
    return executor


# --- binding --------------------------------------------------------------------------------------


def test_a_failed_bind_is_reported_with_executor_node_and_code_and_the_session_stays_open():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        reports = slow(lab, Unbound)
        lab.session("s", tasks=1)
        executor = only(lab)
        assert (executor.state, executor.session) == (ExecutorState.UNBINDING, None)
        failed = [entry for entry in events(lab) if entry[0] == "session.bind-failed"]
        text = f"executor {executor.id} on node n1 failed with code 12: no such model"
        assert failed == [("session.bind-failed", 1001, text)]
        record = lab.service.state.session("s")
        assert (record.open, record.session.bind_failures, lab.states("s")) == (True, 1, ["pending"])
        reports.let_through(lab)
        assert executor.id not in lab.service.state.executors


@pytest.mark.parametrize("kind", [Registered, ExecutorBound], ids=["before it registered", "before it was bound"])
def test_an_executor_that_dies(kind):
    with Lab(a_node(cpu=1)) as lab:
        slow(lab, kind)
        lab.session("s", tasks=1)
        lab.engine.kill(only(lab).id, "exec format error")
        lab.pump()
        code, text = next(entry[1:] for entry in events(lab) if entry[0] == "session.bind-failed")
        assert code == 1001
        assert "code 11: exec format error" in text
        assert lab.service.state.session("s").session.bind_failures == 1
        assert lab.service.state.session("s").tasks[1].losses == 0


def test_at_the_retry_limit_nothing_is_started_and_it_is_reported_once():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.INSTALL_FAILED
        lab.session("s", tasks=3)
        for _ in range(3):
            lab.pass_time(100)
        assert launched(lab) == RETRY_LIMIT
        stated = [entry[0] for entry in events(lab)]
        assert (stated.count("session.bind-failed"), stated.count("session.retry-limit")) == (RETRY_LIMIT, 1)
        assert [entry[1] for entry in events(lab) if entry[0] == "session.retry-limit"] == [1002]
        assert lab.why("s").code is Code.BIND_FAILURES
        assert lab.service.state.session("s").open


def test_a_session_at_its_retry_limit_gets_no_idle_executor_that_matches():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        lab.session("s", tasks=1)
        lab.session("t", tasks=1)
        lab.finish("t")
        lab.service.sessions.close("t", nothing)
        lab.pump()
        assert only(lab).session is None
        assert lab.held("s") == 0


def test_cleared_failures_let_a_session_start_again_and_a_good_bind_clears_them():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        reports = slow(lab, ExecutorGone)
        lab.session("s", tasks=1)
        assert lab.service.state.session("s").session.bind_failures == 1
        lab.engine.bind_code.clear()
        reports.let_through(lab)
        assert lab.states("s") == ["running"]
        assert lab.service.state.session("s").session.bind_failures == 0


def test_reports_of_unknown_executors_are_ignored_and_a_stray_worker_is_stopped():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        stopped = []
        lab.engine.stop = lambda executor, grace_s: stopped.append(executor)
        before = lab.counts("s")
        for event in (Registered("x", 1), ExecutorBound("x"), Unbound("x"), Completed("x", ()), ExecutorGone("x", "?")):
            lab.service.on_engine_event(event)
        lab.pump()
        assert lab.counts("s") == before
        assert stopped == ["x"]


def test_a_bind_that_ends_after_its_session_was_closed_is_undone():
    with Lab(a_node(cpu=1)) as lab:
        reports = slow(lab, ExecutorBound)
        lab.session("s", min_instances=1)
        lab.service.sessions.close("s", nothing)
        lab.pump()
        reports.let_through(lab)
        assert only(lab).session is None
        lab.pass_time(61)
        assert not lab.executors


def test_a_full_life_charges_and_frees_the_books():
    with Lab(a_node(cpu=1)) as lab:
        free = lab.service.state.fleet.cpu_free
        reports = slow(lab, Registered)
        lab.session("s", tasks=1)
        assert (only(lab).state, free.tolist()) == (ExecutorState.VOID, [0])
        reports.kind = ExecutorBound
        reports.let_through(lab)
        assert only(lab).state is ExecutorState.BINDING
        reports.kind = Unbound
        reports.let_through(lab)
        assert only(lab).state is ExecutorState.BOUND
        lab.finish("s")
        lab.pass_time(60)
        assert only(lab).state is ExecutorState.UNBINDING
        reports.kind = ExecutorGone
        reports.let_through(lab)
        assert (only(lab).state, free.tolist()) == (ExecutorState.IDLE, [0])
        lab.pass_time(60)
        assert (only(lab).state, free.tolist()) == (ExecutorState.RELEASING, [0])
        reports.let_through(lab)
        assert (lab.executors, free.tolist()) == ([], [1000])


# --- reuse and letting go -------------------------------------------------------------------------


def leave_an_idle_executor(lab: Lab) -> str:
    lab.session("first", tasks=1)
    lab.finish("first")
    lab.service.sessions.close("first", nothing)
    lab.pump()
    assert only(lab).session is None
    return only(lab).id


@pytest.mark.parametrize(
    ("spec", "reused"),
    [
        pytest.param({}, True, id="equal in everything"),
        pytest.param({"priority": 5, "common_data": b"x"}, True, id="priority and data do not matter"),
        pytest.param({"resreq": "cpu=2"}, False, id="another requirement"),
        pytest.param({"setup": Setup(python="/opt/python")}, False, id="another interpreter"),
        pytest.param({"setup": Setup(environment={"A": "1"})}, False, id="another environment"),
    ],
)
def test_an_idle_executor_is_reused_by_a_session(spec, reused):
    with Lab(a_node(cpu=4)) as lab:
        first = leave_an_idle_executor(lab)
        lab.session("second", tasks=1, **spec)
        assert lab.states("second") == ["running"]
        assert (launched(lab) == 1) is reused
        assert (lab.service.state.executors[first].session == "second") is reused


def test_an_idle_executor_is_not_reused_by_another_application():
    with Lab(a_node(cpu=4)) as lab:
        leave_an_idle_executor(lab)
        asked = lab.service.state.session("first").session.spec.resreq
        lab.service.sessions.create("second", SessionSpec("command", asked), nothing)
        lab.pump()
        lab.submit("second", 1)
        assert launched(lab) == 2


def test_an_idle_executor_gives_way_when_its_room_is_needed():
    with Lab(a_node(cpu=1)) as lab:
        leave_an_idle_executor(lab)
        lab.session("second", "cpu=1,mem=1g", tasks=1)
        assert lab.states("second") == ["running"]
        assert len(lab.executors) == 1


def test_an_executor_without_a_task_leaves_after_the_delay_and_ends_after_another():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        assert lab.service.tick() == lab.now + 60
        lab.pass_time(59)
        assert lab.held("s") == 1
        lab.pass_time(1)
        assert (lab.held("s"), only(lab).session) == (0, None)
        lab.pass_time(60)
        assert lab.executors == []


def test_a_vacant_executor_leaves_at_once_when_its_room_is_needed():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        lab.session("t", "cpu=1,mem=1g", tasks=1)
        assert (lab.held("s"), lab.states("t")) == (0, ["running"])


def test_the_minimum_stays_and_what_is_above_it_leaves():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=4, min_instances=2, task_timeout_s=1000)
        lab.finish("s", 4)
        lab.pass_time(61)
        assert lab.held("s") == 2
        lab.pass_time(10_000)
        assert (lab.held("s"), launched(lab)) == (2, 4)


@pytest.mark.parametrize("sessions", [1, 2], ids=["one session", "two sessions"])
def test_an_application_has_no_more_executors_than_it_may(sessions):
    with Lab(a_node(cpu=8)) as lab:
        lab.service.catalog.put_application(Application("app", "/bin/app", max_instances=3), nothing)
        for i in range(sessions):
            lab.service.sessions.create(f"s{i}", SessionSpec("app"), nothing)
            lab.pump()
            lab.submit(f"s{i}", 10)
        assert len(lab.executors) == 3


def test_all_executors_a_session_deserves_are_started_in_one_cycle():
    with Lab(a_node(cpu=64)) as lab:
        slow(lab, Registered)
        lab.session("s", tasks=64)
        assert launched(lab) == 64
        assert {executor.created_at for executor in lab.executors} == {lab.now}


def test_a_node_has_no_more_executors_than_it_may_also_before_they_are_bound():
    with Lab(a_node(cpu=8, max_executors=3)) as lab:
        slow(lab, Registered)
        lab.session("s", tasks=10)
        assert launched(lab) == 3


def test_a_turn_without_change_runs_no_cycle():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=3)
        cycles = lab.service.loop.cycles
        for _ in range(10):
            lab.now += 1
            lab.service.tick()
        assert lab.service.loop.cycles == cycles


def test_a_protected_executor_is_not_claimed():
    with Lab(a_node(cpu=2), policy=Policy(min_runtime_s=60, reclaim_grace_s=0)) as lab:
        lab.session("s", tasks=2)
        lab.session("t", tasks=2)
        lab.pass_time(59)
        assert (lab.held("s"), lab.held("t")) == (2, 0)


def test_an_executor_is_claimed_once_its_protection_ends():
    with Lab(a_node(cpu=2), policy=Policy(min_runtime_s=60, reclaim_grace_s=0)) as lab:
        lab.session("s", tasks=2)
        lab.session("t", tasks=2)
        lab.pass_time(61)
        lab.pass_time(1)
        assert (lab.held("s"), lab.held("t")) == (1, 1)


# --- nodes ----------------------------------------------------------------------------------------


def test_contact_lost_and_found_again_in_time_costs_nothing():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2)
        lab.service.on_engine_event(NodeLost("n1"))
        lab.pump()
        assert lab.service.state.nodes["n1"].state is NodeState.UNKNOWN
        lab.pass_time(29)
        assert lab.counts("s")["running"] == 1
        lab.service.nodes.reported(a_node(cpu=1))
        lab.pass_time(31)
        assert lab.service.state.nodes["n1"].state is NodeState.READY
        assert (lab.counts("s")["running"], launched(lab)) == (1, 1)


def test_contact_lost_for_30_seconds_gives_the_executors_up_and_the_node_comes_back_empty():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2)
        (old,) = lab.service.state.executors
        lab.service.on_engine_event(NodeLost("n1"))
        lab.pump()
        assert lab.service.tick() == lab.now + 30
        lab.pass_time(30)
        assert lab.service.state.nodes["n1"].state is NodeState.NOT_READY
        assert (lab.executors, lab.states("s")) == ([], ["pending", "pending"])
        assert lab.service.state.session("s").tasks[1].losses == 1
        assert lab.why("s").code is Code.NO_NODES
        lab.service.nodes.reported(a_node(cpu=1))
        lab.pump()
        assert lab.states("s") == ["running", "pending"]
        assert old not in lab.engine.workers, "the engine was asked to end it, should it still live"


def test_nothing_is_placed_on_a_node_out_of_contact():
    with Lab(a_node("n1", 2), a_node("n2", 1)) as lab:
        lab.service.on_engine_event(NodeLost("n1"))
        lab.session("s", tasks=3)
        assert {e.node for e in lab.executors} == {"n2"}


@pytest.mark.parametrize("state", ["unknown", "not-ready"])
def test_a_heartbeat_changes_nothing_while_a_node_is(state):
    with Lab(a_node(cpu=1)) as lab:
        lab.service.nodes.lost("n1")
        lab.pass_time(0 if state == "unknown" else 30)
        lab.service.nodes.heartbeat(a_node(cpu=16))
        lab.pump()
        node = lab.service.state.nodes["n1"]
        assert (node.state, node.cpu_milli) == (state, 1000)


def test_a_heartbeat_of_a_ready_node_changes_facts_and_equal_facts_change_nothing():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=3)
        lab.service.nodes.heartbeat(a_node(cpu=2))
        lab.pump()
        assert lab.held("s") == 2
        fleet = lab.service.state.fleet
        lab.service.nodes.heartbeat(a_node(cpu=2))
        assert lab.service.state.fleet is fleet


def test_a_node_that_shrank_keeps_what_it_runs_and_gets_nothing_new():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=8, task_timeout_s=1000)
        lab.service.nodes.heartbeat(a_node(cpu=2))
        lab.pump()
        assert lab.service.state.fleet.cpu_free.tolist() == [-2000]
        assert (lab.counts("s")["running"], launched(lab)) == (4, 4)


@pytest.mark.parametrize("gone", [True, False], ids=["that is gone", "that is sick"])
def test_a_card_stays_with_its_holder_and_is_allocated_to_no_other(gone):
    with Lab(a_node(gpus=2)) as lab:
        lab.session("s", "gpu=1", tasks=2)
        whole = a_node(gpus=2)
        left = whole.gpus[1:] if gone else (replace(whole.gpus[0], healthy=False), whole.gpus[1])
        lab.service.nodes.heartbeat(replace(whole, gpus=left))
        lab.pump()
        assert lab.counts("s")["running"] == 2
        lab.session("t", "gpu=1", tasks=2, priority=1)
        for _ in range(3):
            lab.pass_time(31)
        assert lab.held("t") == 1
        assert [uuid for e in lab.executors if e.session == "t" for uuid in e.gpus] == ["GPU-n1-1"]


def test_a_cordoned_node_keeps_its_work_and_the_cordon_outlives_a_loss_of_contact():
    with Lab(a_node("n1", 1), a_node("n2", 1)) as lab:
        lab.session("s", tasks=1)
        lab.service.nodes.cordon("n1", True)
        lab.session("t", tasks=3)
        assert {e.node for e in lab.executors if e.session == "t"} == {"n2"}
        assert lab.counts("s")["running"] == 1
        lab.service.nodes.lost("n1")
        lab.service.nodes.reported(a_node("n1", 1))
        lab.pump()
        assert lab.service.state.nodes["n1"].cordoned


def test_a_released_node_takes_its_executors_with_it():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2)
        lab.service.nodes.release("n1")
        lab.pump()
        assert (lab.executors, lab.service.state.fleet.ledger, lab.states("s")) == ([], {}, ["pending", "pending"])
        for change in (lab.service.nodes.release, lambda name: lab.service.nodes.cordon(name, True)):
            with pytest.raises(NotFound, match="node n1"):
                change("n1")


# --- gangs ----------------------------------------------------------------------------------------


def test_no_task_of_a_batch_starts_before_all_members_are_bound():
    with Lab(a_node("n1", 2), a_node("n2", 2)) as lab:
        reports = slow(lab, ExecutorBound)
        lab.session("s", tasks=4, batch_size=4)
        assert len(lab.executors) == 4
        reports.let_through(lab, 3)
        assert lab.counts("s")["running"] == 0
        reports.let_through(lab)
        assert lab.counts("s")["running"] == 4
        assert {(e.gang.id, e.gang.size) for e in lab.executors} == {("g1-1", 4)}
        assert {w.bound.gang.rank: w.tasks[0].task for w in lab.engine.workers.values()} == {0: 1, 1: 2, 2: 3, 3: 4}


def test_a_lost_member_sends_the_whole_batch_back_and_only_its_own_task_is_blamed():
    with Lab(a_node("n1", 2), a_node("n2", 2)) as lab:
        lab.session("s", tasks=4, batch_size=4)
        lost = next(e for e in lab.executors if e.gang.rank == 2)
        lab.engine.kill(lost.id)
        lab.pump()
        assert lab.counts("s")["running"] == 4
        assert {e.gang.id for e in lab.executors} == {"g1-2"}
        assert [task.losses for task in lab.service.state.session("s").tasks.values()] == [0, 0, 1, 0]
        assert [entry[0] for entry in events(lab)].count("gang.released") == 1


def test_a_late_result_of_a_batch_that_was_sent_back_is_dropped():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        first, second = (e.id for e in lab.executors)
        reports = slow(lab, ExecutorGone)
        lab.engine.kill(first)
        reports.let_through(lab)
        lab.engine.finish(second)
        lab.pump()
        assert lab.counts("s")["succeed"] == 0
        reports.let_through(lab)
        assert lab.counts("s")["running"] == 2


def test_a_gang_serves_the_next_batch_too():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=4, batch_size=2)
        lab.finish("s")
        assert lab.states("s") == ["running", "running", "pending", "pending"]
        lab.finish("s")
        assert lab.states("s") == ["succeed", "succeed", "running", "running"]
        lab.finish("s", 2)
        assert (lab.counts("s")["succeed"], launched(lab)) == (4, 2)


def test_a_gang_that_does_not_come_together_in_time_is_released():
    with Lab(a_node(cpu=2)) as lab:
        slow(lab, ExecutorBound)
        lab.session("s", tasks=2, batch_size=2)
        lab.pass_time(119)
        assert len(lab.executors) == 2
        lab.pass_time(1)
        assert (lab.executors, lab.counts("s")["pending"]) == ([], 2)
        assert any("not all members started within 120 s" in entry[2] for entry in events(lab))


def test_a_gang_that_was_released_is_tried_again_after_the_backoff():
    with Lab(a_node(cpu=2)) as lab:
        slow(lab, ExecutorBound)
        lab.session("s", tasks=2, batch_size=2)
        lab.pass_time(120)
        lab.pass_time(10)
        lab.pass_time(1)
        assert len(lab.executors) == 2


def test_a_gang_in_its_backoff_is_not_reported_as_failed_too_often():
    with Lab(a_node(cpu=2)) as lab:
        slow(lab, ExecutorBound)
        lab.session("s", tasks=2, batch_size=2)
        lab.pass_time(120)
        assert lab.why("s").code is not Code.BIND_FAILURES


def test_a_batch_of_which_one_member_fails_to_bind_starts_again_whole():
    with Lab(a_node(cpu=2)) as lab:
        reports = slow(lab, ExecutorBound)
        lab.session("s", tasks=2, batch_size=2)
        reports.kept[1] = replace(reports.kept[1], code=BindCode.ENTER_FAILED)
        reports.kind = type(None)
        reports.let_through(lab)
        for _ in range(3):
            lab.pass_time(130)
        assert lab.counts("s")["running"] == 2


def test_a_batch_is_run_again_when_a_member_is_lost():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2, close_when_done=True)
        lab.finish("s")
        lab.engine.kill(next(e.id for e in lab.executors if e.tasks))
        lab.pump()
        assert lab.states("s") == ["running", "running"]
        lab.finish("s", 2)
        lab.pass_time(1)
        assert (lab.states("s"), lab.service.state.session("s").open) == (["succeed", "succeed"], False)


def test_a_batch_is_tried_again_whole_when_a_task_of_it_fails():
    with Lab(a_node(cpu=3)) as lab:
        lab.session("s", tasks=3, batch_size=3, retries=1)
        lab.finish("s")
        lab.finish("s", code=1)
        assert lab.states("s") == ["running"] * 3
        assert {e.gang.id for e in lab.executors} == {"g1-2"}
        lab.finish("s", 3)
        assert lab.states("s") == ["succeed"] * 3


def test_a_batch_whose_last_task_fails_is_tried_again_by_new_executors():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2, retries=1)
        lab.finish("s")
        lab.finish("s", code=1)
        assert lab.states("s") == ["running", "running"]


def test_a_failed_task_without_retries_lets_its_batch_finish():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        lab.finish("s", code=1)
        assert lab.states("s") == ["running", "running"]
        lab.finish("s")
        assert lab.states("s") == ["failed", "succeed"]


def test_a_cancelled_task_ends_the_running_ones_of_its_batch():
    with Lab(a_node(cpu=3)) as lab:
        lab.session("s", tasks=3, batch_size=3)
        lab.finish("s")
        lab.service.tasks.cancel("s", 2)
        lab.pump()
        assert lab.states("s") == ["succeed", "cancelled", "cancelled"]
        messages = [r.message for r in lab.service.store.results("s", Page(0, 10)) if r.state == "cancelled"]
        assert messages == ["cancelled", "cancelled, with task 2 of its batch"]


def test_a_task_past_its_time_limit_ends_its_batch():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2, task_timeout_s=10, close_when_done=True)
        lab.finish("s")
        lab.pass_time(11)
        assert lab.states("s") == ["succeed", "failed"]


def test_a_batch_of_which_one_member_is_lost_too_often_fails():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        for _ in range(3):
            lab.engine.kill(next(e.id for e in lab.executors if any(t.id == 1 for t in e.tasks.values())))
            lab.pump()
        assert lab.states("s") == ["failed", "failed"]
        messages = [r.message for r in lab.service.store.results("s", Page(0, 10))]
        assert messages[0] == "its executor was lost 3 times, last: killed"
        assert messages[1].startswith("task 1 of its batch failed: ")


def test_a_batch_whose_finished_members_keep_dying_fails():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        for _ in range(3):
            lab.finish("s")
            lab.engine.kill(next(e.id for e in lab.executors if not e.tasks))
            lab.pump()
        assert lab.states("s") == ["failed", "failed"]


def test_a_finished_member_that_dies_while_its_batch_is_being_stopped_changes_nothing():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        lab.finish("s")
        reports = slow(lab, ExecutorGone)
        lab.service.tasks.cancel("s", 2)
        lab.engine.kill(next(e.id for e in lab.executors if not e.tasks))
        lab.pump()
        reports.let_through(lab)
        assert lab.states("s") == ["succeed", "cancelled"]


def test_cancelling_a_finished_task_of_a_running_batch_changes_nothing():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2, batch_size=2)
        lab.finish("s")
        lab.service.tasks.cancel("s", 1)
        lab.pump()
        assert lab.states("s") == ["running", "running"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gang_of_which_one_member_never_binds_gives_up(rank):
    with Lab(a_node(cpu=2)) as lab:
        engine = lab.engine

        def bind(order):
            engine.workers[order.executor].bound = order
            fails = order.gang.rank == rank
            engine.events.append(
                ExecutorBound(order.executor, BindCode.ENTER_FAILED if fails else BindCode.OK, "no model")
            )

        engine.bind = bind
        lab.session("s", tasks=2, batch_size=2)
        for _ in range(RETRY_LIMIT):
            lab.pass_time(10)
        assert lab.why("s").code is Code.BIND_FAILURES
        assert launched(lab) == 10


def test_tasks_beyond_the_last_whole_batch_are_not_the_maximums_fault():
    with Lab(a_node(cpu=8)) as lab:
        lab.session("s", tasks=6, batch_size=4, max_instances=100)
        assert lab.why("s").code is Code.GANG_INCOMPLETE


def test_a_cancelled_task_of_a_waiting_batch_leaves_the_others_waiting_for_a_whole_one():
    with Lab(a_node(cpu=1), a_node("n2", cpu=1)) as lab:
        lab.session("s", tasks=1, batch_size=2)
        assert lab.why("s").code is Code.GANG_INCOMPLETE
        lab.service.tasks.cancel("s", 1)
        lab.pump()
        lab.submit("s", 1)
        assert lab.states("s") == ["cancelled", "pending"]
        lab.submit("s", 1)
        assert lab.states("s") == ["cancelled", "running", "running"]


def test_tasks_beyond_the_last_whole_batch_wait_and_say_so():
    with Lab(a_node(cpu=8)) as lab:
        lab.session("s", tasks=6, batch_size=4)
        why = lab.why("s")
        assert (lab.counts("s")["running"], why.code) == (4, Code.GANG_INCOMPLETE)
        assert "2 of 4" in why.summary


def test_gangs_keep_their_executors_while_one_of_each_has_finished():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=5)) as lab:
        lab.session("hi", tasks=4, batch_size=2, priority=9)
        for gang in {e.gang.id for e in lab.executors}:
            lab.engine.finish(next(e.id for e in lab.executors if e.gang.id == gang))
        lab.session("lo", tasks=4)
        for seconds in (6, 1000):
            lab.pass_time(seconds)
            assert (lab.held("hi"), lab.held("lo")) == (4, 0)
        lab.finish("hi", 2)
        assert lab.states("hi") == ["succeed"] * 4


def test_two_gangs_that_each_need_the_whole_cluster_run_one_after_the_other():
    with Lab(a_node("n1", 2), a_node("n2", 2), policy=Policy(reclaim_grace_s=None)) as lab:
        lab.session("busy", tasks=2)
        lab.session("g1", tasks=4, batch_size=4, priority=1)
        lab.session("g2", tasks=4, batch_size=4, priority=1)
        assert (lab.held("g1"), lab.held("g2")) == (0, 0)
        lab.finish("busy", 2)
        first, second = ("g1", "g2") if lab.held("g1") else ("g2", "g1")
        assert (lab.held(first), lab.held(second)) == (4, 0)
        lab.finish(first, 4)
        for _ in range(3):
            lab.pass_time(61)
        assert (lab.held(first), lab.held(second)) == (0, 4)
        lab.finish(second, 4)
        assert lab.counts("g1")["succeed"] == lab.counts("g2")["succeed"] == 4


@pytest.mark.parametrize("priority", [0, 5], ids=["of equal priority", "of higher priority"])
def test_a_large_request_is_served_though_its_node_is_full_of_small_ones(priority):
    """a and b deserve 1 each and hold 3 each; one of theirs on n2 could as well run on n1."""
    with Lab(a_node("n1", 2), a_node("n2", 4)) as lab:
        for name in ("a", "b"):
            lab.session(name, tasks=500, task_timeout_s=1e6)
        for _ in range(4):
            lab.pass_time(31)
        assert (lab.held("a"), lab.held("b")) == (3, 3)
        lab.session("large", "cpu=4", tasks=1, priority=priority)
        for _ in range(20):
            lab.pass_time(31)
            for name in ("a", "b"):
                lab.finish(name, lab.counts(name)["running"])
        assert lab.held("large") == 1
