"""A winner whose executors fail to start keeps its room while it is tried again: nobody gives way to it twice."""

from __future__ import annotations

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.core.placing.policy import Policy
from ullage.model.executor import BindCode
from ullage.model.rejection import Code
from ullage.service.engine_port import BindOrder
from ullage.service.executors import GANG_BACKOFF_S, GANG_TIMEOUT_S

GRACE_S = 5.0


def evicted(lab: Lab) -> int:
    return sum(event.kind == "executor.evicted" for event in lab.service.events.recent)


def starts(lab: Lab, session: str) -> int:
    return sum(event.kind == "executor.started" and event.session == session for event in lab.service.events.recent)


def contested(lab: Lab, **spec: object) -> None:
    """`b` deserves half of the node, of which `a` has all; its executors cannot enter it."""
    lab.session("a", tasks=40)
    lab.engine.bind_code["b"] = BindCode.ENTER_FAILED
    lab.session("b", tasks=4, **spec)
    lab.pass_time(GRACE_S)


@pytest.mark.parametrize("batch", [1, 2])
def test_nothing_is_evicted_again_while_a_winner_is_tried_again(batch):
    with Lab(a_node(cpu=2 * batch), policy=Policy(reclaim_grace_s=GRACE_S)) as lab:
        contested(lab, batch_size=batch)
        before = starts(lab, "b")
        for _ in range(30):
            lab.pass_time(1.0)
        assert starts(lab, "b") > before
        assert evicted(lab) == batch
        assert lab.held("a") == 2 * batch
        assert "b" not in lab.service.state.promises


@pytest.mark.parametrize("batch", [1, 2])
def test_a_winner_that_is_mended_meanwhile_starts_in_the_room_it_won(batch):
    with Lab(a_node(cpu=2 * batch), policy=Policy(reclaim_grace_s=GRACE_S)) as lab:
        contested(lab, batch_size=batch)
        assert lab.why("b").code is Code.BIND_FAILURES
        assert lab.held("a") == batch
        del lab.engine.bind_code["b"]
        lab.pass_time(4.0)
        assert (lab.held("a"), lab.held("b"), evicted(lab)) == (batch, batch, batch)


def test_a_request_does_not_take_the_room_of_a_winner_that_is_tried_again():
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=GRACE_S)) as lab:
        contested(lab)
        assert lab.service.state.allocator.nominations.sessions


def never_bound(lab: Lab, session: str) -> None:
    """Executors of this session start, and never enter it."""
    bind = lab.engine.bind

    def hold(order: BindOrder) -> None:
        if order.session == session:
            lab.engine.workers[order.executor].bound = order
        else:
            bind(order)

    lab.engine.bind = hold


def test_a_gang_that_does_not_start_completely_is_tried_again_in_the_room_it_won_and_then_given_up():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=GRACE_S)) as lab:
        lab.session("a", tasks=40)
        never_bound(lab, "b")
        lab.session("b", tasks=4, batch_size=2)
        lab.pass_time(GRACE_S)
        for attempt in range(1, 6):
            assert lab.held("b") == 2
            lab.pass_time(GANG_TIMEOUT_S)
            assert lab.service.state.session("b").session.bind_failures == attempt
            assert lab.held("b") == 0
            lab.pass_time(GANG_BACKOFF_S)
        assert (lab.held("a"), lab.held("b"), evicted(lab)) == (4, 0, 2)
        assert lab.why("b").code is Code.BIND_FAILURES


def test_a_session_deserves_what_it_did_while_it_pauses():
    """Else others would reclaim its executors that work, and be reclaimed again when the pause is over."""
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=GRACE_S)) as lab:
        lab.session("b", tasks=20)
        lab.session("a", tasks=20)
        lab.pass_time(GRACE_S)
        assert (lab.held("a"), lab.held("b")) == (2, 2)
        lab.engine.bind_code["b"] = BindCode.ENTER_FAILED
        lab.engine.kill(next(each.id for each in lab.executors if each.session == "b"))
        lab.pump()
        assert lab.service.state.session("b").held_back(lab.now) is Code.BIND_FAILURES
        assert lab.deserved("b") == 2


def test_a_gang_with_a_lost_member_is_protected_for_the_rest_of_its_time():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=GRACE_S, protected_s=60)) as lab:
        lab.session("a", tasks=40)
        lab.session("b", tasks=4, batch_size=2)
        lab.pass_time(GRACE_S)
        won = [each for each in lab.executors if each.session == "b"]
        until = {each.protected_until for each in won}
        lab.pass_time(40)
        lab.engine.kill(won[0].id)
        lab.pump()
        again = [each for each in lab.executors if each.session == "b"]
        assert len(again) == 2
        assert {each.id for each in again}.isdisjoint(each.id for each in won)
        assert {each.protected_until for each in again} == until


def test_room_that_a_winner_waits_for_in_a_pause_is_its_own_after_a_restart(tmp_path):
    with Machine(str(tmp_path / "state.db"), a_node(cpu=2)) as lab:
        lab.policy = Policy(reclaim_grace_s=GRACE_S)
        lab.restart()
        contested(lab)
        assert lab.service.state.promises["b"].paid
        lab.restart()
        assert (lab.held("a"), lab.held("b")) == (1, 1)
