"""Sessions on simulated nodes: who gets what, through the real service."""

from dataclasses import replace

import pytest
from tests.lab import Lab, a_node
from tests.service.test_executor_lives import slow

from ullage.core.books.fleet import Fleet
from ullage.core.placing.policy import Policy
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources
from ullage.service.engine_port import ExecutorGone


def test_one_busy_session_among_four_open_ones_gets_the_whole_machine():
    with Lab(a_node(cpu=8)) as lab:
        for name in ("a", "b", "c"):
            lab.session(name)
        lab.session("busy", tasks=20)
        assert lab.held("busy") == 8


def test_a_maximum_leaves_the_rest_to_the_others():
    with Lab(a_node(cpu=16)) as lab:
        lab.session("small", tasks=50, max_instances=2)
        lab.session("b", tasks=50)
        lab.session("c", tasks=50)
        for _ in range(40):
            lab.pass_time(31)
        assert [lab.deserved(name) for name in ("small", "b", "c")] == [2, 7, 7]


def test_a_late_session_of_equal_weight_gets_its_half_within_the_grace_period():
    with Lab(a_node(cpu=8), policy=Policy(reclaim_grace_s=30)) as lab:
        lab.session("early", tasks=100)
        assert lab.held("early") == 8
        lab.session("late", tasks=100)
        assert (lab.held("early"), lab.held("late")) == (4, 0)
        lab.pass_time(30)
        assert (lab.held("early"), lab.held("late")) == (4, 4)
        assert lab.counts("early")["failed"] == 0


def test_a_late_session_gets_its_half_sooner_when_tasks_end_by_themselves():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=None)) as lab:
        lab.session("early", tasks=100)
        lab.session("late", tasks=100)
        assert (lab.held("early"), lab.held("late")) == (2, 0)
        lab.finish("early", 4)
        assert (lab.held("early"), lab.held("late")) == (2, 2)


def test_a_gpu_request_on_a_machine_without_gpus_leaves_others_running():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("gpu", "gpu=1", tasks=5, priority=100)
        lab.session("cpu", tasks=10)
        assert lab.held("cpu") == 4
        assert lab.why("gpu").code is Code.TOO_LARGE


def test_gpu_executors_go_to_the_node_with_gpus_and_never_beyond_it():
    with Lab(a_node("g", 64, "256g", 8), a_node("c", 64, "256g")) as lab:
        lab.session("train", "cpu=4,mem=16g,gpu=1", tasks=20)
        assert {e.node for e in lab.executors} == {"g"}
        assert len(lab.executors) == 8


def test_work_without_gpus_prefers_the_node_without_them():
    with Lab(a_node("a-gpu", 8, gpus=4), a_node("b-plain", 8)) as lab:
        lab.session("s", tasks=4)
        assert {e.node for e in lab.executors} == {"b-plain"}


def test_ten_tasks_on_four_cpus_run_four_at_a_time():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=10)
        for _ in range(10):
            assert lab.held("s") <= 4
            lab.finish("s")
        assert lab.counts("s")["succeed"] == 10


def test_two_sessions_of_eight_cpus_on_one_eight_cpu_node_run_one_after_the_other():
    with Lab(a_node(cpu=8)) as lab:
        lab.session("first", "cpu=8", tasks=1)
        lab.session("second", "cpu=8", tasks=1)
        assert (lab.held("first"), lab.held("second")) == (1, 0)
        lab.finish("first")
        assert lab.held("second") == 1


def test_32_tasks_on_15_cpus_never_hold_more_than_15_executors():
    with Lab(a_node(cpu=15)) as lab:
        lab.session("a", tasks=16)
        lab.session("b", tasks=16)
        while any(lab.counts(s)["running"] for s in "ab"):
            assert len(lab.executors) <= 15
            lab.finish("a" if lab.counts("a")["running"] else "b")
        assert lab.counts("a")["succeed"] == lab.counts("b")["succeed"] == 16


def test_a_maximum_of_five_is_never_exceeded():
    with Lab(a_node(cpu=16)) as lab:
        lab.session("s", tasks=20, max_instances=5)
        while lab.counts("s")["running"]:
            assert len(lab.executors) <= 5
            lab.finish("s")
        assert lab.counts("s")["succeed"] == 20


def test_a_minimum_is_kept_without_tasks():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", min_instances=2)
        assert lab.held("s") == 2
        lab.pass_time(1000)
        assert lab.held("s") == 2


def test_a_high_priority_without_tasks_blocks_nothing():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("important", priority=100)
        lab.session("other", tasks=10)
        assert lab.held("other") == 4


def test_of_two_equal_sessions_the_older_gets_the_only_cpu():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("older")
        lab.session("younger")
        lab.submit("younger", 1)
        lab.finish("younger")
        lab.submit("older", 1)
        lab.submit("younger", 1)
        assert (lab.held("older"), lab.held("younger")) == (1, 0)


def test_higher_priority_goes_first_in_a_queue():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("low", tasks=2)
        lab.session("high", tasks=4, priority=10)
        lab.finish("low", 2)
        assert (lab.held("high"), lab.held("low")) == (2, 0)


def test_a_batch_of_four_waits_for_its_fourth_task():
    with Lab(a_node(cpu=8)) as lab:
        lab.session("gang", tasks=3, batch_size=4)
        assert lab.held("gang") == 0
        assert lab.why("gang").code is Code.GANG_INCOMPLETE
        lab.submit("gang", 1)
        assert lab.counts("gang")["running"] == 4


def test_no_nodes_means_nothing_deserved_and_no_error():
    with Lab() as lab:
        lab.session("s", tasks=3)
        assert lab.deserved("s") == 0
        assert lab.why("s").code is Code.NO_NODES


def test_room_is_not_held_idle_for_a_request_that_a_minimum_stands_in_the_way_of():
    with Lab(a_node(cpu=4), policy=Policy(reserve_after_s=20)) as lab:
        lab.session("keeper", min_instances=2)
        lab.session("big", "cpu=4", tasks=1)
        lab.pass_time(100)
        lab.session("small", tasks=3)
        lab.pass_time(100)
        assert (lab.held("small"), lab.held("big")) == (2, 0)
        assert lab.why("big").code is Code.CPU


def test_executors_above_a_lowered_maximum_make_room_within_the_grace():
    with Lab(a_node(cpu=8), policy=Policy(reclaim_grace_s=5)) as lab:
        lab.session("a", tasks=8)
        lab.service.sessions.update("a", {"max_instances": 1}, lambda: None)
        lab.pump()
        lab.pass_time(1000)
        assert lab.counts("a")["running"] == 8, "nobody else wants the room: they finish in peace"
        lab.session("b", tasks=8)
        lab.pass_time(6)
        assert (lab.held("a"), lab.held("b")) == (1, 7)


def run_for(lab: Lab, hours: float, task_s: float) -> None:
    """Let every task take `task_s` seconds of virtual time."""
    started: dict[int, float] = {}
    for _ in range(int(hours * 360)):
        for name, worker in list(lab.engine.workers.items()):
            if worker.tasks and not worker.stopped:
                since = started.setdefault(worker.tasks[0].claim, lab.now)
                if lab.now - since >= task_s:
                    lab.engine.finish(name)
        lab.pump()
        lab.pass_time(10)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("cpu=4", 1, 1), ("cpu=4", 1, 1)),
        (("cpu=2", 2, 1), ("cpu=4", 1, 1)),
        (("cpu=1", 4, 4), ("cpu=1", 4, 4)),
        (("cpu=1", 4, 4), ("cpu=1", 1, 1)),
    ],
    ids=["one each", "two small and a large one", "two gangs", "a gang and a small one"],
)
def test_tasks_longer_than_any_wait_end_although_others_wait(first, second):
    with Lab(a_node(cpu=4)) as lab:
        for name, (request, tasks, batch) in (("a", first), ("b", second)):
            lab.session(name, request, tasks, batch_size=batch)
        run_for(lab, hours=6, task_s=600)
        assert lab.counts("a")["succeed"] == first[1]
        assert lab.counts("b")["succeed"] == second[1]
        assert len(lab.engine.launched) <= 2 * (first[1] + second[1])


def test_executors_above_a_maximum_are_ended_only_as_far_as_their_room_is_needed():
    with Lab(a_node(cpu=8), policy=Policy(reclaim_grace_s=5)) as lab:
        lab.session("a", tasks=8)
        lab.service.sessions.update("a", {"max_instances": 1}, lambda: None)
        lab.pump()
        lab.pass_time(1000)
        lab.session("b", tasks=1)
        assert lab.counts("a")["running"] == 8, "the grace runs from when somebody waits"
        for _ in range(3):
            lab.pass_time(6)
        assert (lab.counts("b")["running"], lab.counts("a")["running"]) == (1, 7)


@pytest.mark.parametrize("tasks", [8, 80])
@pytest.mark.parametrize("limited", ["queue", "application"])
def test_a_limit_is_shared_fairly_among_those_under_it(limited, tasks):
    queues = (Queue("q", limit=Limit(cpu_milli=8000 if limited == "queue" else None)),)
    with Lab(a_node(cpu=16), policy=Policy(reclaim_grace_s=5), queues=queues) as lab:
        if limited == "application":
            known = lab.service.state.applications["function"]
            lab.service.state.applications["function"] = replace(known, max_instances=8)
        lab.session("a", tasks=tasks, queue="q")
        assert lab.held("a") == 8
        lab.session("b", tasks=tasks, queue="q")
        for _ in range(20):
            lab.pass_time(10)
            assert lab.held("a") + lab.held("b") <= 8
        assert (lab.held("a"), lab.held("b")) == (4, 4)
        started = len(lab.engine.launched)
        lab.pass_time(1000)
        assert len(lab.engine.launched) == started


def test_tasks_that_are_being_stopped_ask_for_nothing():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=2, batch_size=2, priority=3)
        reports = slow(lab, ExecutorGone)
        lab.service.tasks.cancel("s", 1)
        lab.pump()
        lab.session("b", tasks=2)
        assert lab.counts("b")["running"] == 2
        reports.let_through(lab)
        assert lab.states("s") == ["cancelled", "cancelled"]


def test_a_turn_without_demand_does_not_build_the_books_of_the_entitlement(monkeypatch):
    copies: list[Fleet] = []
    with Lab(a_node(cpu=2)) as lab:
        requested = Fleet.requested
        monkeypatch.setattr(Fleet, "requested", lambda fleet: (copies.append(fleet), requested(fleet))[1])
        lab.service.loop.dirty = True
        lab.pump()
        assert not copies
        lab.session("s", tasks=1)
        assert copies
        assert lab.engine.alive


def test_who_waits_for_room_is_told_of_a_guarantee_that_takes_more_than_there_is():
    vast = Queue("vast", guarantee=Resources(cpu_milli=9000))
    with Lab(a_node(cpu=4), queues=(vast, Queue("other"))) as lab:
        lab.session("first", queue="vast", tasks=20)
        lab.session("held-back", queue="other", tasks=20)
        text = "queue vast is guaranteed cpu=9; all nodes together have cpu=4"
        assert lab.why("held-back").warnings == (text,)
        lab.service.catalog.put_queue(Queue("vast", guarantee=Resources(cpu_milli=2000)), lambda: None)
        assert lab.why("held-back").warnings == ()
