"""Cards that take nobody: of no capacity, with no compute left, or found with users of several isolations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.wire.hami.pods import read_register

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation, IsolationPolicy, Part
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

GIB = 2**30
GOOD = Gpu("good", 1, vram_bytes=40 * GIB, compute_gflops=100_000)


def ready(*cards: Gpu) -> FleetAllocator:
    allocator = FleetAllocator(Fleet([Node("n", 8000, 2**36, cards)]))
    allocator.set_ready()
    return allocator


def ask(text: str, uid: str = "new") -> Request:
    return Request(uid, ResourceRequirement.from_string(text))


def outcome(allocator: FleetAllocator, text: str, uid: str = "new") -> Allocation | Refusal:
    return allocator.alloc(ask(text, uid), 0.0)


# --- no capacity ---


@pytest.mark.parametrize("fact", ["vram_bytes", "compute_gflops", "max_users"])
@pytest.mark.parametrize("text", ["gpu=1", "gpu=0.5", "percent=10", "vram=1g", "isolation=shared,tflops=1"])
def test_a_card_that_has_nothing_to_give_is_never_chosen(fact, text):
    empty = replace(GOOD, uuid="empty", index=0, **{fact: 0})
    found = outcome(ready(empty, GOOD), text)
    assert isinstance(found, Allocation)
    assert found.gpus == ("good",)
    refused = outcome(ready(empty), text)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.curable) == (Code.NO_CAPACITY, False)


def test_an_empty_card_counts_in_no_sum_of_whole_cards():
    empty = replace(GOOD, uuid="empty", index=0, vram_bytes=0)
    assert ready(empty, GOOD).fleet.gpu_total.tolist() == [1]


def test_a_register_of_no_memory_or_no_slots_is_one_of_an_empty_card():
    text = (
        '[{"id": "a", "count": 0, "devmem": 1, "health": true}, {"id": "b", "count": 1, "devmem": 0, "health": true}]'
    )
    assert [card.gpu.usable for card in read_register(text)] == [False, False]


@pytest.mark.parametrize(
    ("mode", "takes"),
    [
        ("hami-core", {Isolation.SHARED, Isolation.SOFT}),
        ("", {Isolation.SHARED, Isolation.SOFT}),
        ("mps", {Isolation.SHARED, Isolation.SOFT, Isolation.HARD}),
        ("mig", {Isolation.PARTITIONED}),
    ],
)
def test_a_register_says_how_a_card_keeps_its_users_apart(mode, takes):
    (card,) = read_register(f'[{{"id": "a", "count": 1, "devmem": 1, "mode": "{mode}", "health": true}}]')
    assert card.gpu.isolations == takes


# --- no compute ---


@pytest.mark.parametrize("held", ["percent=100,vram=1g", "tflops=100"])
def test_who_asks_for_no_compute_finds_none_on_a_card_whose_compute_is_taken(held):
    allocator = ready(GOOD)
    assert isinstance(outcome(allocator, held, "held"), Allocation)
    refused = outcome(allocator, "vram=1g")
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.rejections[0].needed, refused.curable) == (Code.GPU_COMPUTE, 0, True)
    allocator.dealloc("held", 1.0)
    assert isinstance(outcome(allocator, "vram=1g"), Allocation)


# --- several isolations ---

DYNAMIC = replace(GOOD, isolation_policy=IsolationPolicy.DYNAMIC)


def found_on(card: Gpu, uid: str, mode: Isolation) -> Allocation:
    part = Part(compute_gflops=10_000, vram_bytes=GIB)
    asked = ask(f"tflops=10,vram=1g,isolation={mode}", uid).requirement
    return Allocation(
        uid, "n", asked, ("good",), AllocationState.BOUND, (Charge.of(part, card, mode),), Claim(), 0.0, 0.0
    )


def mixed() -> FleetAllocator:
    allocator = ready(DYNAMIC)
    allocator.reconcile([found_on(DYNAMIC, "soft", Isolation.SOFT), found_on(DYNAMIC, "hard", Isolation.HARD)], 0.0)
    return allocator


@pytest.mark.parametrize(("leaves", "stays"), [("soft", "hard"), ("hard", "soft")])
def test_a_dynamic_card_that_was_found_mixed_takes_nobody_until_it_is_empty(leaves, stays):
    allocator = mixed()
    allocator.dealloc(leaves, 1.0)
    for mode in ("soft", "hard"):
        refused = outcome(allocator, f"tflops=10,isolation={mode}")
        assert isinstance(refused, Refusal)
        assert refused.code is Code.ISOLATION_CONFLICT
    allocator.dealloc(stays, 2.0)
    assert isinstance(outcome(allocator, f"tflops=10,isolation={stays}"), Allocation)


def test_a_holder_of_a_mixed_card_that_is_found_again_keeps_it_closed():
    allocator = mixed()
    again = found_on(DYNAMIC, "hard", Isolation.HARD)
    allocator.dealloc("soft", 1.0)
    assert allocator.reconcile([again], 2.0) == ()
    assert allocator.adopt(again) == {}
    allocator.set_nodes([Node("n", 9000, 2**36, (DYNAMIC,))])
    refused = outcome(allocator, "tflops=10,isolation=hard")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.ISOLATION_CONFLICT


def test_a_card_that_becomes_dynamic_under_several_isolations_is_closed_and_told():
    allocator = ready(GOOD)
    for mode in (Isolation.SOFT, Isolation.HARD):
        assert isinstance(outcome(allocator, f"tflops=10,isolation={mode}", mode.value), Allocation)
    changed = allocator.set_nodes([Node("n", 8000, 2**36, (DYNAMIC,))])
    assert {held.id for held in changed if held.charges[0].mixed} == {"soft", "hard"}
    allocator.dealloc("soft", 1.0)
    refused = outcome(allocator, "tflops=10,isolation=hard")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.ISOLATION_CONFLICT
