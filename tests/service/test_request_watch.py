"""What watches days of requests finds victims that are not needed, and no others."""

from __future__ import annotations

from types import SimpleNamespace

from tests.lab import Lab
from tests.service.request_watch import Outcome, RequestWatch
from tests.service.test_promised_rooms import alloc, ask, free, preempt, victims

from ullage.core.evicting.preemption import Preemption, check_single_node_preempt
from ullage.core.evicting.victims import EvictionContext
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import IsolationPolicy

GIB = 1 << 30


def a_node(*policies: IsolationPolicy) -> Node:
    """A node with a card of each of these."""
    cards = (
        Gpu(f"GPU-{n}", n, vram_bytes=40 * GIB, compute_gflops=100_000, isolation_policy=policy)
        for n, policy in enumerate(policies)
    )
    return Node("n1", 8000, 64 * GIB, tuple(cards))


STATIC, DYNAMIC = IsolationPolicy.STATIC, IsolationPolicy.DYNAMIC


def judged(lab: Lab, request: Request, plan: Preemption) -> list[str]:
    """Return what the watch finds wrong with a plan."""
    outcome = Outcome()
    day = SimpleNamespace(service=lab.service, seed=1, agenda=SimpleNamespace(now=lab.now))
    RequestWatch(day, outcome).judge(request, plan)
    return [violation.split(": ", 1)[1] for violation in outcome.violations]


def planned(lab: Lab, request: Request, *among: str) -> Preemption:
    """Return who is to go for a request, or who of some."""
    if not among:
        plan = lab.service.preemptions.plan(request)
    else:
        allocator = lab.service.state.allocator
        plan = check_single_node_preempt(
            EvictionContext(allocator.fleet, allocator.rules, lab.now), request, "n1", among
        )
    assert isinstance(plan, Preemption)
    return plan


def test_cheaper_victims_are_found():
    with Lab(a_node(STATIC, STATIC)) as lab:
        alloc(lab, "cheap", priority=0)
        alloc(lab, "dear", priority=5)
        request = ask("new", "tflops=80,vram=1g", priority=10)
        assert judged(lab, request, planned(lab, request)) == []
        (reported,) = judged(lab, request, planned(lab, request, "dear"))
        assert reported == "new fits without ('cheap',), which is cheaper than ('dear',)"


def test_a_victim_of_another_isolation_on_a_dynamic_card_is_not_cheaper():
    with Lab(a_node(DYNAMIC, STATIC)) as lab:
        alloc(lab, "cheap", "gpu=0.5,isolation=hard", priority=0)
        alloc(lab, "dear", "gpu=0.75", priority=5)
        request = ask("new", "gpu=0.5", priority=10)
        plan = planned(lab, request)
        assert lab.service.allocations.get("cheap").gpus == ("GPU-0",)
        assert plan.uids == ("dear",)
        assert judged(lab, request, plan) == []


def test_nothing_is_evicted_for_a_request_that_fits():
    with Lab(a_node(STATIC, STATIC)) as lab:
        alloc(lab, "low")
        alloc(lab, "next", priority=5)
        request = ask("new", priority=10)
        plan = planned(lab, request)
        free(lab, "next")
        assert "new fits without ('low',)" in judged(lab, request, plan)


def test_room_that_a_winner_gets_before_somebody_else_leaves_is_not_free():
    with Lab(a_node(STATIC, STATIC)) as lab:
        alloc(lab, "slow", "tflops=40,vram=1g", priority=0)
        alloc(lab, "quick", "tflops=60,vram=1g", priority=1)
        alloc(lab, "other", priority=10)
        assert victims(preempt(lab, "first", "tflops=20,vram=1g", priority=5)) == ["slow"]
        assert victims(preempt(lab, "second", "tflops=50,vram=1g", priority=50)) == ["quick"]
        free(lab, "quick")
        request = ask("new", "tflops=20,vram=1g", priority=50)
        plan = planned(lab, request)
        assert plan.uids == ("other",)
        assert judged(lab, request, plan) == []
