"""A second service on the file of the first: what was acknowledged is there."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.lab import Machine, a_node

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.holdings import ASSUMED_TTL_S
from ullage.model.application import Application
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import NotFound
from ullage.model.executor import BindCode
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import RETRY_LIMIT, SessionSpec
from ullage.service.store_port import Page


@pytest.fixture
def machine(tmp_path):
    @contextmanager
    def build(*nodes):
        with Machine(str(tmp_path / "state.db"), *nodes) as lab:
            yield lab

    with build(a_node(cpu=2)) as lab:
        yield lab


def nothing() -> None:
    pass


def test_running_tasks_run_again_and_ended_ones_do_not(machine):
    machine.session("s", tasks=4, priority=3, common_data=b"data")
    machine.finish("s")
    machine.finish("s", code=1, message="no")
    before = machine.service.state.session("s").session
    machine.restart()
    assert machine.service.state.session("s").session == before
    assert machine.states("s") == ["succeed", "failed", "running", "running"]
    machine.finish("s", 2)
    assert machine.counts("s") == {"pending": 0, "running": 0, "succeed": 3, "failed": 1, "cancelled": 0}


def test_results_are_read_from_where_the_reader_was(machine):
    machine.session("s", tasks=3)
    machine.finish("s", 2)
    before = machine.service.store.results("s", Page(0, 10))
    machine.restart()
    assert machine.service.store.results("s", Page(0, 10)) == before
    assert [r.output for r in before] == [b"done", b"done"]
    machine.finish("s")
    assert [r.sequence for r in machine.service.store.results("s", Page(1, 10))] == [2, 3]


def test_without_a_node_running_tasks_are_pending(machine):
    machine.session("s", tasks=2)
    machine._nodes = ()
    machine.restart()
    assert machine.states("s") == ["pending", "pending"]
    assert machine.counts("s")["pending"] == 2
    assert machine.executors == []


def test_a_repeated_submission_is_still_known_and_ids_go_on(machine):
    machine.session("s")
    machine.submit("s", 2, "once")
    machine.restart()
    assert machine.submit("s", 2, "once") == (1, 2)
    assert machine.submit("s", 1, "more") == (3, 1)


def test_claims_and_executors_are_never_named_again(machine):
    machine.session("s", tasks=2)
    claims, names, epoch = machine.claims(), {e.id for e in machine.executors}, machine.service.state.epoch
    for _ in range(3):
        machine.restart()
        assert machine.service.state.epoch > epoch
        assert min(machine.claims()) > max(claims)
        assert not names & {e.id for e in machine.executors}
        epoch, claims = machine.service.state.epoch, machine.claims()
        names |= {e.id for e in machine.executors}


def test_losses_and_errors_are_not_forgotten(machine):
    machine.session("s", tasks=1, retries=1)
    machine.finish("s", code=1)
    machine.engine.kill(next(iter(machine.engine.workers)))
    machine.pump()
    machine.restart()
    task = machine.service.state.session("s").tasks[1]
    assert (task.losses, task.errors) == (1, 1)
    machine.finish("s", code=1, message="for good")
    assert machine.counts("s")["failed"] == 1


def test_a_session_at_its_retry_limit_stays_there_until_it_is_cleared(machine):
    machine.engine.bind_code["s"] = BindCode.ENTER_FAILED
    machine.session("s", tasks=1)
    for _ in range(RETRY_LIMIT):
        machine.pass_time(10)
    machine.restart()
    assert machine.service.state.session("s").session.bind_failures == RETRY_LIMIT
    assert machine.held("s") == 0
    machine.service.sessions.clear_failures("s", nothing)
    machine.pump()
    assert machine.states("s") == ["running"]
    machine.restart()
    assert machine.service.state.session("s").session.bind_failures == 0


def test_events_come_back_and_are_numbered_on(machine):
    machine.session("s", tasks=1)
    before = machine.store.events(Page(0, 100))
    machine.restart()
    after = machine.store.events(Page(0, 100))
    assert after[: len(before)] == before
    assert [event.number for event in after] == list(range(1, len(after) + 1))
    assert len(after) > len(before)


def test_applications_queues_and_changes_of_a_session_come_back(machine):
    app = Application("app", "/bin/app", arguments=("-x",), environment={"A": "1"}, retries=2)
    machine.service.catalog.put_application(app, nothing)
    machine.service.catalog.put_queue(Queue("team", weight=3), nothing)
    machine.service.sessions.create("s", SessionSpec("app", queue="team"), nothing)
    machine.service.sessions.update("s", {"priority": 9, "max_instances": 1}, nothing)
    machine.pump()
    machine.restart()
    assert machine.service.state.applications["app"] == app
    assert machine.service.state.queues["team"] == Queue("team", weight=3)
    spec = machine.service.state.session("s").session.spec
    assert (spec.priority, spec.max_instances, spec.queue) == (9, 1, "team")


def test_a_configured_queue_replaces_the_stored_one(machine):
    machine.service.catalog.put_queue(Queue("team", weight=3), nothing)
    machine.pump()
    machine.queues = (Queue("team", weight=5),)
    machine.restart()
    assert machine.service.state.queues["team"].weight == 5


def test_a_closed_session_stays_closed_and_a_deleted_one_is_gone(machine):
    for name in ("s", "t"):
        machine.session(name, tasks=1)
        machine.finish(name)
        machine.service.sessions.close(name, nothing)
        machine.pump()
    machine.service.sessions.delete("t", nothing)
    machine.restart()
    assert list(machine.service.state.sessions) == ["s"]
    assert not machine.service.state.session("s").open
    assert machine.counts("s")["succeed"] == 1


def test_a_new_session_is_younger_than_those_from_before(machine):
    machine.session("s")
    machine.session("t")
    machine.restart()
    assert machine.session("u").session.number > machine.service.state.session("t").session.number


def test_waiting_batches_start_again_whole(machine):
    machine.session("gang", tasks=2, batch_size=2)
    machine.restart()
    assert machine.states("gang") == ["running", "running"]
    assert {e.gang.id for e in machine.executors} == {f"g{machine.service.state.epoch}-1"}


def test_shared_data_comes_back_with_its_tasks(machine):
    machine.session("s")
    machine.service.tasks.submit("s", "k", [b"1", b"2"], b"shared", lambda *_: None)
    machine.pump()
    machine.restart()
    orders = [order for worker in machine.engine.workers.values() for order in worker.tasks]
    assert {order.input for order in orders} == {b"1", b"2"}
    assert all(order.shared == b"shared" for order in orders)


def test_a_session_whose_cancellation_was_acknowledged_stays_cancelled(machine):
    machine.session("s", tasks=2)
    answered = []
    machine.engine.stop = lambda executor, grace_s: None  # the process ends before its workers have
    machine.service.sessions.cancel("s", lambda: answered.append(True))
    machine.pump()
    assert answered
    machine.restart()
    machine.pass_time(1)
    assert not machine.service.state.session("s").open


def test_a_cordon_outlives_a_restart(machine):
    machine.service.nodes.cordon("n1", True)
    machine.pump()
    machine.restart()
    assert machine.service.state.nodes["n1"].cordoned


def asked(uid: str, gang: GangClaim | None = None, text: str = "gpu=1", priority: int = 0) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(gang=gang, priority=priority))


def phase(machine: Machine, key: str) -> GangPhase:
    return machine.service.gangs.status(key).phase


def test_a_gang_that_runs_is_known_after_a_restart_and_can_be_ended(machine):
    machine._nodes = (a_node(gpus=4),)
    machine.restart()
    machine.service.gangs.put("g", [asked(uid, GangClaim("g", 2, 2)) for uid in ("a", "b")], nothing)
    before = machine.service.gangs.status("g")
    machine.restart()
    assert machine.service.gangs.status("g") == before
    assert before.phase is GangPhase.RUNNING
    assert machine.service.gangs.drop("g", nothing) == ("a", "b")
    machine.restart()
    with pytest.raises(NotFound):
        machine.service.gangs.status("g")
    assert machine.service.allocations.all() == ()


def test_a_gang_that_waits_is_placed_after_a_restart_when_there_is_room(machine):
    machine._nodes = (a_node(gpus=2),)
    machine.restart()
    machine.service.allocations.alloc(asked("other"), nothing)
    machine.service.gangs.put("g", [asked(uid, GangClaim("g", 2, 2)) for uid in ("a", "b")], nothing)
    assert phase(machine, "g") is GangPhase.WAITING
    machine.restart()
    assert phase(machine, "g") is GangPhase.WAITING
    machine.service.allocations.dealloc("other", None, nothing)
    machine.pump()
    assert phase(machine, "g") is GangPhase.RUNNING


def test_members_that_left_their_gang_are_not_restored(machine):
    machine._nodes = (a_node(gpus=4),)
    machine.restart()
    machine.service.gangs.put("g", [asked(uid, GangClaim("g", 1, 2)) for uid in ("a", "b")], nothing)
    machine.service.allocations.dealloc("a", None, nothing)
    machine.restart()
    assert list(machine.service.gangs.status("g").answers) == ["b"]
    machine.service.allocations.dealloc("b", None, nothing)
    machine.restart()
    assert [gang.key for gang in machine.store.load().gangs] == []


DAY_S = 86_400.0


def test_a_reservation_does_not_last_for_a_jump_of_the_clock(machine):
    machine._nodes = (a_node(gpus=2),)
    machine.restart()
    machine.now += DAY_S  # the wall clock of this start is a day ahead
    machine.restart()
    machine.service.allocations.assume(asked("assumed"), None, nothing)
    machine.service.allocations.alloc(asked("released"), nothing)
    machine.service.allocations.release("released", 60, nothing)
    machine.now -= DAY_S
    machine.restart()
    machine.pass_time(60)
    assert [held.id for held in machine.service.allocations.all()] == ["assumed"]
    machine.pass_time(ASSUMED_TTL_S)
    assert machine.service.allocations.all() == ()


def test_a_restart_preserves_the_deadline_of_a_release(machine):
    machine._nodes = (a_node(gpus=1),)
    machine.restart()
    machine.service.allocations.alloc(asked("p"), nothing)
    machine.service.allocations.release("p", 60, nothing)
    machine.pass_time(20)
    machine.restart()
    machine.pass_time(39)
    assert [held.id for held in machine.service.allocations.all()] == ["p"]
    machine.pass_time(1)
    assert machine.service.allocations.all() == ()
