"""Room for which others leave is the winner's: of a request, of a gang, of a session, whoever else comes meanwhile."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node
from tests.service.test_executor_lives import slow

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.evicting.preemption import NoPreemption
from ullage.core.placing.decision import Refusal
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.sharing.plan import EvictExecutor
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.quota import Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.service.engine_port import ExecutorGone

GIB = 1 << 30


def nothing() -> None:
    """Nobody waits for the answer."""


def ask(uid: str, text: str = "gpu=1", priority: int = 0, **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(priority=priority, **claim))


def alloc(lab: Lab, uid: str, text: str = "gpu=1", priority: int = 0, **claim: object) -> Allocation | Refusal:
    outcome = lab.service.allocations.alloc(ask(uid, text, priority, **claim), nothing)
    lab.pump()
    return outcome


def preempt(lab: Lab, uid: str, text: str = "gpu=1", priority: int = 10) -> Allocation | Nomination | Refusal:
    outcome = lab.service.preemptions.alloc(ask(uid, text, priority), nothing)
    lab.pump()
    return outcome


def free(lab: Lab, *uids: str) -> None:
    for uid in uids:
        lab.service.allocations.dealloc(uid, None, nothing)
        lab.pump()


def victims(answer: Allocation | Nomination | Refusal) -> list[str]:
    assert isinstance(answer, Nomination), answer
    return sorted(victim.uid for victim in answer.victims)


# --- requests ---


@pytest.mark.parametrize("priority", [0, 10, 100])
def test_no_other_request_gets_the_room_of_its_victims(priority):
    with Lab(a_node(gpus=1)) as lab:
        alloc(lab, "low")
        assert victims(preempt(lab, "high")) == ["low"]
        free(lab, "low")
        refused = alloc(lab, "other", priority=priority)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.NOMINATED
        assert isinstance(preempt(lab, "high"), Allocation)


def test_a_winner_keeps_its_cards_for_the_protected_time():
    with Lab(a_node(gpus=1), requests=Rules(protected_s=50)) as lab:
        alloc(lab, "low")
        preempt(lab, "high")
        free(lab, "low")
        assert isinstance(preempt(lab, "high"), Allocation)
        lab.pass_time(49)
        refused = preempt(lab, "higher", priority=100)
        assert isinstance(refused, NoPreemption)
        lab.pass_time(1)
        assert victims(preempt(lab, "higher", priority=100)) == ["high"]


def test_a_request_that_evicted_nothing_is_not_protected():
    with Lab(a_node(gpus=1)) as lab:
        alloc(lab, "low")
        assert victims(preempt(lab, "high")) == ["low"]


def test_a_quota_that_others_used_up_meanwhile_does_not_stop_the_winner():
    with Lab(a_node(gpus=2)) as lab:
        lab.service.quotas.put("own", Quota(max_workers=1), nothing)
        alloc(lab, "low", "gpu=2")
        lab.service.preemptions.alloc(ask("high", priority=10, namespace="own"), nothing)
        free(lab, "low")
        assert isinstance(alloc(lab, "late", namespace="own"), Refusal)
        assert isinstance(alloc(lab, "high", priority=10, namespace="own"), Allocation)


def first_leaves_early(lab: Lab, **claim: object) -> Allocation | Refusal:
    """Two win; the victim of the first has left, that of the second takes its time. What the first gets."""
    for uid, priority in (("early", 0), ("late", 1), ("stays", 20)):
        assert isinstance(alloc(lab, uid, priority=priority, **claim), Allocation)
    for uid in ("high", "higher"):
        asked = lab.service.preemptions.alloc(ask(uid, "cpu=1,gpu=1", 10, **claim), nothing)
        assert isinstance(asked, Nomination)
    free(lab, "early")
    return alloc(lab, "high", "cpu=1,gpu=1", 10, **claim)


def test_a_quota_counts_a_victim_and_the_winner_of_its_namespace_once():
    with Lab(a_node(gpus=3)) as lab:
        lab.service.quotas.put("own", Quota(max_workers=3), nothing)
        assert isinstance(first_leaves_early(lab, namespace="own"), Allocation)


def test_the_cap_of_workers_of_a_node_counts_a_victim_and_the_winner_once():
    with Lab(a_node(gpus=3), requests=Rules(workers_per_node=3)) as lab:
        assert isinstance(first_leaves_early(lab), Allocation)


def test_a_session_does_not_take_the_last_worker_of_a_node_from_a_winner():
    with Lab(a_node(cpu=8, gpus=2), requests=Rules(workers_per_node=2)) as lab:
        alloc(lab, "low")
        alloc(lab, "stays", priority=20)
        assert victims(preempt(lab, "high")) == ["low"]
        free(lab, "low")
        lab.session("s", "cpu=1", tasks=1)
        assert lab.held("s") == 0
        assert isinstance(preempt(lab, "high"), Allocation)


def test_the_room_of_a_winner_that_asks_for_more_follows_its_new_request():
    """Else others would take what it does not keep, and more would give way to it."""
    with Lab(a_node(gpus=1)) as lab:
        alloc(lab, "low")
        assert victims(preempt(lab, "high", "gpu=0.5")) == ["low"]
        assert victims(preempt(lab, "high", "gpu=1")) == ["low"]
        free(lab, "low")
        assert isinstance(alloc(lab, "other", "gpu=0.5"), Refusal)
        assert isinstance(preempt(lab, "high", "gpu=1"), Allocation)


def test_a_winner_that_asks_for_too_much_loses_its_room():
    with Lab(a_node(gpus=1)) as lab:
        alloc(lab, "low")
        preempt(lab, "high")
        assert isinstance(preempt(lab, "high", "gpu=2"), NoPreemption)
        assert lab.service.preemptions.nominations() == ()
        assert lab.store.load().nominations == ()
        free(lab, "low")
        assert isinstance(alloc(lab, "other"), Allocation)


def test_resources_that_a_victim_still_holds_are_not_charged_twice():
    with Lab(a_node(cpu=4, gpus=3)) as lab:
        alloc(lab, "low", "cpu=2,gpu=1")
        alloc(lab, "other", "cpu=1,gpu=1", priority=20)
        alloc(lab, "third", "gpu=0.5", priority=20)
        assert victims(preempt(lab, "high", "cpu=2,gpu=1")) == ["low"]
        assert isinstance(preempt(lab, "late", "cpu=1,gpu=0.5", priority=5), Allocation)


A100 = Gpu("GPU-0", 0, model="NVIDIA A100-SXM4-40GB", vram_bytes=40 * GIB, compute_gflops=312_000)


def test_no_request_joins_victims_on_a_card_that_the_winner_cannot_share():
    with Lab(Node("n1", 8000, 64 * GIB, (A100,))) as lab:
        alloc(lab, "first", "gpu=0.5")
        alloc(lab, "second", "gpu=0.5")
        asked = "tflops=5,vram=10g,isolation=partitioned"
        assert victims(preempt(lab, "high", asked)) == ["first", "second"]
        free(lab, "first")
        assert isinstance(alloc(lab, "other", "gpu=0.1"), Refusal)
        free(lab, "second")
        assert isinstance(preempt(lab, "high", asked), Allocation)


# --- gangs ---


def gang(*uids: str, text: str = "gpu=1", priority: int = 10, timeout_s: float | None = None) -> list[Request]:
    claim = GangClaim("g", len(uids), len(uids), timeout_s, preempt=True)
    return [ask(uid, text, priority, gang=claim) for uid in uids]


def test_a_gang_does_not_give_up_while_others_leave_for_it():
    with Lab(a_node(gpus=2)) as lab:
        alloc(lab, "low", "gpu=2")
        lab.service.gangs.put("g", gang("a", "b", timeout_s=20.0), nothing)
        lab.pass_time(30)
        lab.pass_time(30)
        assert lab.service.gangs.status("g").phase is GangPhase.WAITING
        free(lab, "low")
        assert lab.service.gangs.status("g").phase is GangPhase.RUNNING


def test_free_room_of_a_gang_is_reserved_while_victims_leave_for_the_rest():
    with Lab(a_node(gpus=2)) as lab:
        alloc(lab, "low")
        lab.service.gangs.put("g", gang("a", "b"), nothing)
        assert lab.service.allocations.get("low").state is AllocationState.RELEASING
        assert isinstance(alloc(lab, "other", priority=100), Refusal)
        free(lab, "low")
        assert lab.service.gangs.status("g").phase is GangPhase.RUNNING


def test_all_members_of_a_gang_that_evicted_others_are_protected():
    with Lab(a_node(gpus=2)) as lab:
        alloc(lab, "low")
        lab.service.gangs.put("g", gang("a", "b"), nothing)
        free(lab, "low")
        for uid in ("x", "y"):
            assert isinstance(preempt(lab, uid, priority=100), NoPreemption)


# --- sessions and requests ---


def wide_session(lab: Lab) -> None:
    """A session needs the cards of two executors, of which one has left."""
    lab.session("a", "cpu=1,gpu=1", tasks=2)
    lab.session("wide", "cpu=1,gpu=2", tasks=1, priority=5)
    assert lab.service.state.promises["wide"].places
    first = min(executor.id for executor in lab.executors)
    lab.service.executors.evict(EvictExecutor(first, lab.service.state.executors[first].eviction))
    lab.pump()
    assert lab.held("wide") == 0


@pytest.mark.parametrize("priority", [0, 100])
def test_a_request_does_not_take_room_that_a_session_was_promised(priority):
    with Lab(a_node(cpu=4, gpus=2), policy=Policy(reclaim_grace_s=30)) as lab:
        wide_session(lab)
        assert isinstance(alloc(lab, "r", priority=priority), Refusal)
        assert isinstance(preempt(lab, "p", "cpu=3,gpu=0.5", priority=priority), Refusal)
        lab.pass_time(30)
        assert lab.held("wide") == 1


def test_a_gang_does_not_take_room_that_a_session_was_promised():
    with Lab(a_node(cpu=4, gpus=2), policy=Policy(reclaim_grace_s=30)) as lab:
        wide_session(lab)
        lab.service.gangs.put("g", gang("a1"), nothing)
        assert lab.service.gangs.status("g").phase is GangPhase.WAITING
        lab.pass_time(30)
        assert lab.held("wide") == 1


def test_room_that_is_promised_to_a_session_no_more_is_a_requests_again():
    with Lab(a_node(cpu=4, gpus=2), policy=Policy(reclaim_grace_s=30)) as lab:
        wide_session(lab)
        lab.service.gangs.put("g", gang("a1"), nothing)
        lab.service.sessions.cancel("wide", lambda: None)
        lab.service.sessions.cancel("a", lambda: None)
        lab.pump()
        lab.pass_time(31)
        assert lab.service.gangs.status("g").phase is GangPhase.RUNNING


def test_a_promised_place_of_an_idle_executor_is_not_charged_twice():
    with Lab(a_node(cpu=5, gpus=1)) as lab:
        lab.session("a", "cpu=2", tasks=1, close_when_done=True)
        reports = slow(lab, ExecutorGone)
        lab.finish("a")
        lab.session("b", "cpu=4", tasks=1)
        assert lab.service.state.promises["b"].places
        assert isinstance(alloc(lab, "r", "cpu=2,gpu=1"), Refusal)
        assert isinstance(alloc(lab, "s", "cpu=1,gpu=1"), Allocation)
        reports.let_through(lab)
        assert lab.held("b") == 1
