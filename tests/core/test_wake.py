"""Which waiting requests a change is worth; amounts as TFLOPS and GiB."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from ullage.core.admitting.wake import (
    OF_NODE,
    CardLook,
    Causes,
    Pending,
    look,
    woken_by_card,
    woken_by_nodes,
    woken_by_quota,
)
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.stages import Rejections
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.quota import Quota
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

GIB = 2**30


def asks(
    tflops: int, gib: int, count: int = 1, uid: str = "waiting", namespace: str = "default", **card: object
) -> Request:
    selector = CardSelector(**({"pool": "pool", "isolation": Isolation.SOFT} | card))
    part = Part(tflops * 1000, gib * GIB)
    return Request(uid, ResourceRequirement(0, 0, count, part, selector), Claim(namespace=namespace))


def card(tflops: int, gib: int, uuid: str = "gpu", **facts: object) -> Gpu:
    return Gpu(uuid, 0, vram_bytes=gib * GIB, compute_gflops=tflops * 1000, **({"pool": "pool"} | facts))


def fleet(*gpus: Gpu) -> Fleet:
    return Fleet([Node("node", 64_000, 2**40, gpus)])


def seen(gpu: Gpu, *held: tuple[int, int]) -> CardLook | None:
    """A card on which allocations of these amounts run."""
    allocator = allocating(fleet(gpu))
    for number, (tflops, gib) in enumerate(held):
        assert isinstance(allocator.alloc(asks(tflops, gib, uid=f"held-{number}"), 0), Allocation)
    return look(allocator.fleet, gpu.uuid)


def allocating(books: Fleet, rules: Rules | None = None) -> FleetAllocator:
    allocator = FleetAllocator(books, rules)
    allocator.set_ready()
    return allocator


BIG = card(200, 20)
"""With 200/20 free; less what the cases put on it."""


@pytest.mark.parametrize(
    ("request_", "before", "after", "woken"),
    [
        pytest.param(asks(100, 10), seen(BIG, (150, 15)), seen(BIG, (50, 5)), True, id="C73 50/5 -> 150/15"),
        pytest.param(asks(100, 10), seen(BIG, (50, 5)), seen(BIG, (150, 15)), False, id="C73 150/15 -> 50/5"),
        pytest.param(asks(100, 10), seen(BIG), seen(BIG, (50, 5)), False, id="C73 a decrease, and it fits still"),
        pytest.param(asks(50, 5), None, seen(card(100, 10)), True, id="C74 a new card"),
        pytest.param(asks(100, 10), seen(BIG, (110, 8)), seen(BIG, (100, 8)), True, id="C75 90/12 -> 100/12"),
        pytest.param(asks(100, 10), seen(BIG, (150, 15)), seen(BIG, (110, 5)), False, id="more, but not enough"),
        pytest.param(asks(100, 10, 2), seen(BIG, (150, 15)), seen(BIG, (50, 5)), True, id="one card of two"),
        pytest.param(asks(50, 5), seen(BIG, (50, 5)), seen(BIG), False, id="it fitted before"),
        pytest.param(asks(50, 5), seen(card(40, 4)), seen(card(60, 6)), True, id="capacity grew"),
        pytest.param(asks(50, 5), seen(card(60, 6, pool="other")), seen(card(60, 6)), True, id="moved to its pool"),
        pytest.param(asks(50, 5), None, seen(card(60, 6, pool="other")), False, id="a new card of another pool"),
        pytest.param(
            asks(900, 90),
            seen(card(60, 6, phase=GpuPhase.PENDING)),
            seen(card(60, 6)),
            True,
            id="it starts running, of whatever size",
        ),
        pytest.param(asks(50, 5), seen(card(60, 6)), None, False, id="it is gone"),
        pytest.param(asks(50, 5), None, None, False, id="it never was"),
        pytest.param(asks(50, 5, pool=None), None, seen(card(60, 6)), True, id="any pool will do"),
    ],
)
def test_a_change_of_a_card_wakes(request_, before, after, woken):
    assert woken_by_card(before, after, [Pending(request_)]) == (("waiting",) if woken else ())


def test_a_lock_that_opens_is_a_change_that_fits():
    dynamic = card(100, 10, isolation_policy=IsolationPolicy.DYNAMIC)
    allocator = allocating(fleet(dynamic))
    allocator.alloc(asks(10, 1, uid="hard", isolation=Isolation.HARD), 0)
    before = look(allocator.fleet, "gpu")
    allocator.dealloc("hard", 1)
    assert woken_by_card(before, look(allocator.fleet, "gpu"), [Pending(asks(10, 1))]) == ("waiting",)


def test_a_look_stays_as_it_was_when_the_books_go_on():
    allocator = allocating(fleet(card(100, 10, "a"), card(100, 10, "b")))
    allocator.alloc(asks(60, 6, 2, uid="both"), 0)
    before = look(allocator.fleet, "b")
    allocator.dealloc("both", 1)
    assert before is not None
    assert (before.gpu.uuid, int(before.books().compute_free[0])) == ("b", 40_000)
    assert woken_by_card(before, look(allocator.fleet, "b"), [Pending(asks(60, 6))]) == ("waiting",)


def test_any_event_of_a_card_on_the_nominated_node_wakes():
    smaller = woken_by_card(seen(BIG), seen(BIG, (150, 15)), [Pending(asks(100, 10), nominated="node")])
    assert smaller == woken_by_card(seen(BIG), None, [Pending(asks(100, 10), nominated="node")]) == ("waiting",)
    assert woken_by_card(seen(BIG), None, [Pending(asks(100, 10), nominated="elsewhere")]) == ()


def test_a_quota_wakes_whom_it_refused():
    quotas = Quotas({"team": Quota(max_workers=1)})
    allocator = allocating(fleet(card(100, 10)), Rules(quotas=quotas))
    allocator.alloc(asks(10, 1, uid="first", namespace="team"), 0)
    refused = allocator.alloc(asks(10, 1, namespace="team"), 0)
    assert isinstance(refused, Refusal)
    pending = [Pending(asks(10, 1, namespace="team"), Causes.of(refused)), Pending(asks(500, 1, uid="large"))]
    assert woken_by_quota(quotas.levels("team"), pending) == ("waiting",)
    assert woken_by_quota(["other"], pending) == ()


def test_a_free_place_for_a_worker_wakes_whom_the_node_refused():
    allocator = allocating(fleet(card(100, 10)), Rules(workers_per_node=1))
    allocator.alloc(asks(10, 1, uid="first"), 0)
    refused = allocator.alloc(asks(10, 1), 0)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.WORKER_CAP
    pending = [Pending(asks(10, 1), Causes.of(refused)), Pending(asks(500, 1, uid="large"))]
    assert woken_by_nodes(["node"], pending) == ("waiting",)
    assert woken_by_nodes(["other"], pending) == ()


def test_a_node_wakes_also_whom_it_refused_before_the_stage_that_decided_and_who_is_nominated_there():
    cap = Rejection(Code.WORKER_CAP, Cure.CAPACITY, 2, 1, "node", "gpu")
    few = Rejection(Code.NOT_ENOUGH_CARDS, Cure.CAPACITY, 2, 1, "other", "x")
    refused = allocating(fleet(card(100, 10)), Rules(workers_per_node=0)).alloc(asks(900, 1), 0)
    assert isinstance(refused, Refusal)
    stages = (replace(refused.stages[0], removed=(cap,)),)
    pending = [
        Pending(asks(1, 1, uid="capped"), Causes.of(Refusal((few,), stages))),
        Pending(asks(1, 1, uid="nominated"), nominated="node"),
        Pending(asks(1, 1, uid="large"), Causes.of(refused)),
    ]
    assert woken_by_nodes(["node"], pending) == ("capped", "nominated")


def test_an_unknown_card_is_not_seen():
    assert look(fleet(), "gpu") is None


def test_causes_are_those_of_each_rejection_and_leave_rejections_of_equal_cards_as_they_are():
    cards = [card(100, 10, f"{node}-{k}") for node in "ab" for k in range(2)]
    books = Fleet([Node(node, 8_000, 64 * GIB, tuple(cards[2 * k : 2 * k + 2])) for k, node in enumerate("ab")])
    allocator = allocating(books, Rules(workers_per_node=1))
    allocator.alloc(asks(10, 1, uid="first"), 0)
    refused = allocator.alloc(asks(10, 1, 3), 0)
    assert isinstance(refused, Refusal)
    lists = [refused.rejections, *(stage.removed for stage in refused.stages)]
    found = Causes.of(refused)
    assert not any("_all" in vars(each) for each in lists if isinstance(each, Rejections))
    assert found.nodes == {each.node for each in chain.from_iterable(lists) if each.code in OF_NODE} == {"a"}
