"""Waits, back-offs and the room that others gave up: a restart in the middle changes none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.lab import Lab, Machine, a_node
from tests.service.test_executor_lives import slow
from tests.service.test_restart import asked, nothing, phase

from ullage.core.admitting.gang_state import BACKOFF_S, GangPhase
from ullage.core.sharing.world import ExecutorPhase
from ullage.model.claim import GangClaim
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.service.engine_port import ExecutorBound, ExecutorGone, NodeReported
from ullage.service.executors import GANG_BACKOFF_S, GANG_TIMEOUT_S
from ullage.service.nodes import DRAIN_S
from ullage.service.store_port import Page

Build = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path) -> Iterator[Build]:
    made: list[Machine] = []

    def build(*nodes: Node) -> Machine:
        made.append(Machine(str(tmp_path / "state.db"), *nodes))
        return made[0]

    yield build
    made[0].close()


def waits_since(lab: Lab, session: str) -> float | None:
    return lab.service.state.session(session).waiting_since


def holding(lab: Lab, *sessions: str) -> tuple[int, ...]:
    return tuple(lab.held(session) for session in sessions)


# --- waits ---


def waiting(machine: Build) -> Machine:
    """A session that waits since the second 1000 for a card that a request has."""
    lab = machine(a_node(gpus=1))
    lab.service.allocations.alloc(asked("other"), nothing)
    lab.session("s", "cpu=1,gpu=1", tasks=1)
    assert waits_since(lab, "s") == 1000
    return lab


def test_a_session_that_waits_goes_on_waiting(machine):
    lab = waiting(machine)
    lab.pass_time(200)
    lab.restart()
    assert waits_since(lab, "s") == 1000
    assert lab.service.loop.overdue_at() == 1000 + lab.policy.reserve_after_s


def test_a_wait_goes_on_until_the_nodes_have_reported(machine):
    lab = waiting(machine)
    lab._nodes = ()
    lab.restart()
    lab.pass_time(10)
    assert lab.service.state.session("s").waiting_for is Code.NO_NODES
    assert waits_since(lab, "s") == 1000
    lab.service.on_engine_event(NodeReported(a_node(gpus=1)))
    lab.pump()
    assert (lab.service.state.session("s").waiting_for, waits_since(lab, "s")) == (Code.GPU, 1000)


def test_a_wait_goes_on_while_its_node_is_away(machine):
    lab = waiting(machine)
    lab.service.nodes.cordon("n1", True)
    lab.pass_time(10)
    assert waits_since(lab, "s") == 1000
    lab.service.nodes.cordon("n1", False)
    lab.pass_time(10)
    assert waits_since(lab, "s") == 1000


def test_a_session_that_started_before_a_restart_waits_for_nothing_after_it(machine):
    lab = waiting(machine)
    lab.service.allocations.dealloc("other", None, nothing)
    lab.pump()
    assert lab.states("s") == ["running"]
    lab.restart()
    assert waits_since(lab, "s") is None
    assert lab.store.load().waits == ()


def test_a_wait_begins_at_the_start_of_a_server_whose_clock_was_ahead(machine):
    lab = waiting(machine)
    lab.now = 500
    lab.restart()
    assert waits_since(lab, "s") == 500


def test_a_deleted_session_leaves_no_wait(machine):
    lab = waiting(machine)
    lab.service.sessions.cancel("s", nothing)
    lab.service.sessions.delete("s", nothing)
    lab.session("s")
    lab.restart()
    assert waits_since(lab, "s") is None
    assert lab.store.load().waits == ()


# --- back-off ---


def test_a_batch_that_did_not_come_together_backs_off_to_the_end_over_a_restart(machine):
    lab = machine(a_node(cpu=2))
    slow(lab, ExecutorBound)
    lab.session("s", tasks=2, batch_size=2)
    lab.pass_time(GANG_TIMEOUT_S)
    lab.pass_time(GANG_BACKOFF_S - 1)
    lab.restart()
    assert lab.executors == []
    assert lab.service.state.session("s").waiting_for is Code.BACKOFF
    lab.pass_time(1)
    assert lab.states("s") == ["running", "running"]


def test_a_back_off_is_no_longer_than_usual_when_the_clock_was_ahead(machine):
    lab = machine(a_node(cpu=2))
    slow(lab, ExecutorBound)
    lab.session("s", tasks=2, batch_size=2)
    lab.pass_time(GANG_TIMEOUT_S)
    lab.now = 500
    lab.restart()
    lab.pass_time(GANG_BACKOFF_S)
    assert lab.states("s") == ["running", "running"]


def gang(lab: Lab, timeout_s: float = 60) -> None:
    claim = GangClaim("g", 2, 2, timeout_s)
    lab.service.gangs.put("g", [asked(uid, claim) for uid in ("a", "b")], nothing)
    lab.pump()


def full(machine: Build) -> Machine:
    """Two cards, and a request that has one of them."""
    lab = machine(a_node(gpus=2))
    lab.service.allocations.alloc(asked("other"), nothing)
    return lab


def test_a_gang_waits_on_until_its_time_is_over(machine):
    lab = full(machine)
    gang(lab)
    lab.pass_time(59)
    lab.restart()
    assert phase(lab, "g") is GangPhase.WAITING
    lab.pass_time(1)
    assert phase(lab, "g") is GangPhase.TIMED_OUT


def backed_off(lab: Lab) -> int:
    return sum(event.kind == "gang.backed-off" for event in lab.store.events(Page(0, 1000)))


def test_a_gang_backs_off_on_and_the_next_time_twice_as_long(machine):
    lab = full(machine)
    gang(lab)
    lab.pass_time(60)
    assert phase(lab, "g") is GangPhase.TIMED_OUT
    lab.restart()
    lab.pass_time(BACKOFF_S - 1)
    assert phase(lab, "g") is GangPhase.TIMED_OUT
    assert backed_off(lab) == 1
    lab.pass_time(1)
    assert phase(lab, "g") is GangPhase.WAITING
    lab.restart()
    lab.pass_time(60)
    lab.restart()
    lab.pass_time(2 * BACKOFF_S - 1)
    assert phase(lab, "g") is GangPhase.TIMED_OUT
    lab.pass_time(1)
    assert phase(lab, "g") is GangPhase.WAITING
    assert backed_off(lab) == 2


def test_a_gang_whose_time_ran_out_while_the_server_was_away_is_tried_before_it_backs_off(machine):
    lab = full(machine)
    lab.service.allocations.release("other", 100, nothing)
    gang(lab)
    lab.now += 100
    lab.restart()
    assert phase(lab, "g") is GangPhase.RUNNING


def test_a_gang_whose_time_ran_out_while_the_server_was_away_backs_off_without_room(machine):
    lab = full(machine)
    gang(lab)
    lab.now += 100
    lab.restart()
    lab.pass_time(0)
    assert phase(lab, "g") is GangPhase.TIMED_OUT


def test_a_gang_waits_and_backs_off_no_longer_than_usual_when_the_clock_was_ahead(machine):
    lab = full(machine)
    gang(lab)
    lab.now = 500
    lab.restart()
    lab.pass_time(60)
    assert phase(lab, "g") is GangPhase.TIMED_OUT
    lab.now = 200
    lab.restart()
    lab.pass_time(2 * BACKOFF_S)
    assert phase(lab, "g") is GangPhase.WAITING


# --- room that others gave up ---


def won(machine: Build, kind: type | None = None) -> Machine:
    """Two executors of `a`, one of which left for `b`; then comes `c`, which deserves both by its priority.

    Reports of that kind do not arrive before the restart.
    """
    lab = machine(a_node(cpu=2))
    lab.session("a", tasks=2)
    lab.session("b", tasks=1)
    if kind is not None:
        slow(lab, kind)
    lab.pass_time(30)
    lab.session("c", tasks=2, priority=5)
    return lab


def test_a_winner_starts_after_a_restart_before_it_could_start(machine):
    lab = won(machine, ExecutorGone)
    assert holding(lab, "a", "b", "c") == (0, 0, 0)
    assert lab.service.state.promises["b"].paid
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 1, 1)


def test_a_winner_starts_after_a_restart_while_it_starts(machine):
    lab = won(machine, ExecutorBound)
    assert [executor.phase for executor in lab.executors if executor.session == "b"] == [ExecutorPhase.STARTING]
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 1, 1)


def test_a_winner_keeps_its_room_over_a_restart_in_the_protected_time(machine):
    lab = won(machine)
    assert holding(lab, "b") == (1,)
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 1, 1)
    lab.pass_time(lab.policy.protected_s - 1)
    assert [executor.phase for executor in lab.executors if executor.session == "b"] == [ExecutorPhase.BUSY]
    lab.pass_time(1)
    lab.pass_time(30)
    assert holding(lab, "b", "c") == (0, 2)


def test_a_winner_keeps_nothing_after_the_protected_time(machine):
    lab = won(machine)
    lab.pass_time(lab.policy.protected_s)
    lab.restart()
    assert holding(lab, "b", "c") == (0, 2)


def test_won_room_stays_reserved_however_long_the_server_was_down(machine):
    lab = won(machine)
    lab.now += 86_400
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 1, 1)


def test_a_restart_preserves_all_room_of_a_batch(machine):
    lab = machine(a_node(cpu=4))
    lab.session("a", tasks=4)
    lab.session("b", tasks=2, batch_size=2)
    lab.pass_time(30)
    lab.session("c", tasks=4, priority=5)
    assert holding(lab, "b") == (2,)
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 2, 2)


def test_a_promise_waits_for_the_node_of_its_place(machine):
    lab = won(machine, ExecutorGone)
    lab._nodes = (a_node("n2", cpu=0, gpus=1),)
    lab.restart()
    assert lab.service.state.promises["b"].paid
    lab.service.on_engine_event(NodeReported(a_node(cpu=2)))
    lab.pump()
    assert holding(lab, "a", "b", "c") == (0, 1, 1)


def test_a_promise_of_a_place_that_never_reports_ends_when_its_session_starts_elsewhere(machine):
    lab = won(machine, ExecutorGone)
    lab._nodes = (a_node("n2", cpu=8),)
    lab.restart()
    assert holding(lab, "a", "b", "c") == (2, 1, 2)
    assert lab.service.state.promises == {}


def won_on_two_nodes(machine: Build) -> Machine:
    """Members of the batch `b` on both nodes; `c` deserves all by its priority. The server restarts without nodes."""
    lab = machine(a_node("n1", cpu=4), a_node("n2", cpu=4))
    lab.session("a", tasks=8)
    lab.session("b", "cpu=3", tasks=2, batch_size=2)
    lab.pass_time(30)
    lab.session("c", tasks=8, priority=5)
    assert {executor.node for executor in lab.executors if executor.session == "b"} == {"n1", "n2"}
    lab._nodes = ()
    lab.restart()
    return lab


def report(lab: Lab, *nodes: Node) -> None:
    for node in nodes:
        lab.service.on_engine_event(NodeReported(node))
        lab.pump()


def test_the_room_of_a_batch_is_held_on_each_node_that_reports_until_the_last_one_has(machine):
    lab = won_on_two_nodes(machine)
    report(lab, a_node("n1", cpu=4))
    assert holding(lab, "a", "b", "c") == (0, 0, 1)
    lab.pass_time(DRAIN_S - 1)
    report(lab, a_node("n2", cpu=4))
    assert holding(lab, "a", "b", "c") == (0, 2, 2)
    assert lab.service.state.promises == {}


def test_the_room_of_a_batch_is_lent_once_a_node_of_it_is_given_up(machine):
    lab = won_on_two_nodes(machine)
    report(lab, a_node("n1", cpu=4))
    assert holding(lab, "b", "c") == (0, 1)
    lab.pass_time(DRAIN_S)
    assert holding(lab, "b", "c") == (0, 4)
    assert lab.service.state.promises["b"].paid


def test_a_batch_starts_at_once_where_one_node_has_room_for_all_of_it(machine):
    lab = won_on_two_nodes(machine)
    report(lab, a_node("n1", cpu=8))
    assert holding(lab, "b", "c") == (2, 2)
    assert lab.service.state.promises == {}


def test_the_promise_of_a_cancelled_session_ends(machine):
    lab = won(machine, ExecutorGone)
    lab.service.sessions.cancel("b", nothing)
    lab.pump()
    lab.restart()
    assert holding(lab, "a", "b", "c") == (0, 0, 2)
    assert "b" not in lab.service.state.promises
