"""What a node has, and what it may promise; amounts as TFLOPS and GiB."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.allocator import FleetAllocator
from ullage.core.books.capacity import node_capacity
from ullage.core.books.fleet import Fleet
from ullage.core.placing.adjust import Adjustment, AmountsChange
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place, select
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest, NotFound
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

GIB = 2**30
TIGHT = Oversubscription(0, 0, 100)
"""Promises no more than there is."""


def card(uuid: str, tflops: int | None = 100, gib: int | None = 16, pool: str = "pool", **facts: object) -> Gpu:
    compute, vram = None if tflops is None else tflops * 1000, None if gib is None else gib * GIB
    return Gpu(uuid, 0, pool=pool, compute_gflops=compute, vram_bytes=vram, **facts)


def node(*gpus: Gpu, name: str = "node", memory_gib: int = 0) -> Node:
    return Node(name, 64_000, memory_gib * GIB, gpus)


def amounts(tflops: float = 0, gib: float = 0, percent: float = 0) -> Part:
    return Part(round(tflops * 1000), round(gib * GIB), round(percent * PPM / 100))


def asks(
    uid: str, request: Part | None, limit: Part | None = None, count: int = 1, pool: str | None = "pool"
) -> Request:
    """Without a request whole cards are asked."""
    part = request and Part(request.compute_gflops, request.vram_bytes, request.compute_ppm)
    isolation = Isolation.SOFT if request else Isolation.SHARED
    selector = CardSelector(pool=pool, isolation=isolation)
    return Request(uid, ResourceRequirement(0, 0, count, part, selector), Claim(limit=limit))


def allocating(*nodes: Node, **rules: object) -> FleetAllocator:
    allocator = FleetAllocator(Fleet(nodes), Rules(**rules))
    allocator.set_ready()
    return allocator


def bound(allocator: FleetAllocator, request: Request) -> Allocation:
    answer = allocator.alloc(request, 0)
    assert isinstance(answer, Allocation)
    return answer


# --- the section ---


def test_a_section_has_defaults():
    assert Oversubscription() == Oversubscription(50, 70, 500)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vram_expand_to_host_mem", -1),
        ("vram_expand_to_host_mem", 101),
        ("vram_expand_to_host_disk", 100.5),
        ("vram_expand_to_host_disk", True),
        ("compute_oversell_ratio", 99),
        ("compute_oversell_ratio", 100_001),
        ("compute_oversell_ratio", "500"),
    ],
)
def test_a_section_out_of_range_is_invalid(field, value):
    with pytest.raises(InvalidRequest, match=field):
        Oversubscription(**{field: value})


def test_virtual_capacity_adds_memory_and_disk_and_multiplies_compute():
    assert Oversubscription().virtual((1000, 100), 30, 10) == (5000, 122)
    assert Oversubscription(0, 0, 100).virtual((1000, 100), 30, 10) == (1000, 100)
    assert Oversubscription(33, 33, 333).virtual((7, 0), 10, 10) == (23, 6)


# --- the capacity of a node ---


def test_an_allocation_lowers_what_is_available_by_what_it_asks():  # C1
    allocator = allocating(node(card("a"), card("b"), memory_gib=64))
    before = node_capacity(allocator.fleet, "node", {"pool": Oversubscription()})
    bound(allocator, asks("x", amounts(50, 8)))
    after = node_capacity(allocator.fleet, "node", {"pool": Oversubscription()})
    assert (before.total, before.available) == (amounts(200, 32), amounts(200, 32))
    assert (after.total, after.available) == (amounts(200, 32), amounts(150, 24))
    assert (after.virtual, after.virtual_available) == (amounts(1000, 64), amounts(950, 56))


def test_the_cards_of_an_executor_are_not_available():
    allocator = allocating(node(card("a"), card("b")))
    allocator.fleet.charge(Allocation("e1", "node", ResourceRequirement.of(gpu=1), ("a",)))
    seen = node_capacity(allocator.fleet, "node")
    assert seen.available == seen.effective == amounts(100, 16)


def test_assumed_is_still_available_but_not_effective():
    allocator = allocating(node(card("a"), card("b")))
    allocator.assume(asks("x", amounts(50, 8)), ["a"], 0)
    seen = node_capacity(allocator.fleet, "node")
    assert (seen.available, seen.effective) == (amounts(200, 32), amounts(150, 24))
    assert (seen.workers, seen.idle, seen.workers_per_card) == (1, False, {"a": 1, "b": 0})
    allocator.commit("x", 1)
    assert node_capacity(allocator.fleet, "node").available == amounts(150, 24)
    allocator.release("x")
    assert node_capacity(allocator.fleet, "node").available == amounts(150, 24)


def test_limits_are_counted_for_every_card_and_instead_of_requests():
    allocator = allocating(node(card("a"), card("b")))
    bound(allocator, asks("x", amounts(10, 2), amounts(40, 4), count=2))
    seen = node_capacity(allocator.fleet, "node", {"pool": Oversubscription(0, 0, 200)})
    assert (seen.available, seen.virtual_available) == (amounts(180, 28), amounts(320, 24))
    assert (seen.workers, seen.workers_per_card) == (1, {"a": 1, "b": 1})


def test_a_percentage_is_of_each_card_and_a_whole_card_is_all_of_it():
    allocator = allocating(node(card("a", 71, 16), card("b", 100, 16)))
    allocator.bind(asks("x", amounts(percent=1), amounts(percent=15)), ["a"], 0)
    allocator.bind(asks("y", None), ["b"], 0)
    seen = node_capacity(allocator.fleet, "node", {"pool": Oversubscription()})
    assert seen.virtual_available.compute_gflops == 5 * 171_000 - 10_650 - 100_000
    assert seen.effective == Part(71_000 - 710, 16 * GIB)


def test_only_managed_cards_count():
    gpus = (
        card("a"),
        card("missing", healthy=False),
        card("other", used_by="plugin"),
        card("unknown", None, None),
        card("starting", 50, 8, phase=GpuPhase.PENDING, model="L4"),
    )
    seen = node_capacity(Fleet([node(*gpus)]), "node")
    assert (seen.cards, seen.managed, seen.total, seen.models) == (5, 2, amounts(150, 24), ("L4",))
    assert seen.idle


def test_a_card_that_says_only_its_vram_counts_for_vram():
    allocator = allocating(node(card("a", None, 16)))
    bound(allocator, asks("x", amounts(gib=4, percent=50)))
    seen = node_capacity(allocator.fleet, "node", {"pool": Oversubscription(0, 0, 100)})
    assert (seen.total, seen.available, seen.virtual_available) == (amounts(0, 16), amounts(0, 12), amounts(0, 12))


def test_a_capacity_that_shrank_shows_what_is_missing():
    allocator = allocating(node(card("a"), card("b")))
    allocator.bind(asks("x", amounts(80, 12), amounts(100, 16)), ["a"], 0)
    allocator.set_nodes([node(card("a", 50, 16), card("b"))])
    seen = node_capacity(allocator.fleet, "node")
    assert (seen.total, seen.available, seen.deficit) == (amounts(150, 32), amounts(100, 20), amounts(30, 0))
    allocator.set_nodes([node(card("a", 50, 8))])
    seen = node_capacity(allocator.fleet, "node", {"pool": TIGHT})
    assert (seen.available, seen.effective, seen.virtual_available) == (amounts(), amounts(), amounts())
    assert (seen.deficit, seen.virtual_deficit) == (amounts(30, 4), amounts(50, 8))


def test_an_unknown_node_is_an_error():
    with pytest.raises(NotFound, match="nowhere"):
        node_capacity(Fleet([]), "nowhere")


# --- no more than may be promised ---


def test_without_a_section_anything_may_be_promised():
    bound(allocating(node(card("a"))), asks("x", amounts(1, 1), amounts(5000, 500)))


def test_a_node_promises_up_to_its_virtual_capacity_exactly():
    section = {"pool": Oversubscription(50, 0, 200)}
    allocator = allocating(node(card("a"), card("b"), memory_gib=16), oversubscription=section)
    bound(allocator, asks("x", amounts(1, 1), amounts(150, 20), count=2))
    bound(allocator, asks("y", Part(1000), amounts(100, 0)))
    refused = allocator.alloc(asks("z", Part(1), Part(1)), 0)
    assert isinstance(refused, Refusal)
    (first, *_) = refused.rejections
    assert (first.code, first.cure, first.needed, first.had) == (Code.OVERSUBSCRIPTION, Cure.CAPACITY, 1, 0)
    assert refused.curable
    assert [stage.filter for stage in refused.stages if stage.removed] == ["oversubscription"]


def test_a_node_promises_no_more_when_only_it_is_examined():
    fleet, rules = Fleet([node(card(name), name=name) for name in "ab"]), Rules(oversubscription={"pool": TIGHT})
    second = np.array([1])
    refused = place(fleet, rules, asks("x", amounts(1, 1), amounts(101, 1)), rows=second)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.OVERSUBSCRIPTION
    chosen = place(fleet, rules, asks("y", amounts(1, 1), amounts(100, 1)), rows=second)
    assert isinstance(chosen, Choice)
    assert chosen.node == "b"


def test_a_request_for_more_cards_than_any_node_has_left_is_refused_with_the_most_that_one_has():
    fleet = Fleet([node(card("a"), card("b"), name="a"), node(card("c"), name="b")])
    refused = select(fleet, Rules(), asks("x", None, count=3), {"a": ("a", "b"), "b": ("c",)})
    assert isinstance(refused, Refusal)
    (rejection,) = refused.rejections
    assert (rejection.code, rejection.needed, rejection.had) == (Code.NO_NODE_FITS, 3, 2)
    refused = select(fleet, Rules(), asks("x", None, count=3), {})
    assert isinstance(refused, Refusal)
    assert [(each.needed, each.had) for each in refused.rejections] == [(3, 0)]


def test_what_no_release_can_cure_says_so():
    allocator = allocating(node(card("a")), oversubscription={"pool": TIGHT})
    refused = allocator.alloc(asks("x", amounts(1, 1), amounts(101, 1)), 0)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.curable) == (Code.OVERSUBSCRIPTION, False)


def test_disk_counts_where_it_is_known():
    section, disks = {"pool": Oversubscription(0, 50, 100)}, {"node": 8 * GIB}
    bound(allocating(node(card("a")), oversubscription=section, disks=disks), asks("x", amounts(1, 1), amounts(1, 20)))
    refused = allocating(node(card("a")), oversubscription=section).alloc(asks("x", amounts(1, 1), amounts(1, 20)), 0)
    assert isinstance(refused, Refusal)


def test_the_best_node_that_may_not_promise_it_is_passed_over():
    section = {"pool": Oversubscription(0, 0, 100)}
    allocator = allocating(node(card("a"), name="a"), node(card("b"), name="b"), oversubscription=section)
    assert bound(allocator, asks("x", amounts(10, 1), amounts(90, 1))).node == "a"
    assert bound(allocator, asks("y", amounts(5, 1), amounts(10, 1))).node == "a"
    assert bound(allocator, asks("z", amounts(5, 1), amounts(20, 1))).node == "b"


@pytest.mark.parametrize("limit", [amounts(percent=95), None], ids=["a percentage", "whole cards"])
def test_a_limit_that_depends_on_the_card_is_judged_on_each(limit):
    gpus = card("held"), card("large"), card("small", 50, 8)
    allocator = allocating(node(*gpus), oversubscription={"pool": TIGHT})
    allocator.assume(asks("other", amounts(1, 1), amounts(160, 12)), ["held"], 0)
    asked = asks("x", amounts(1, 1) if limit else None, limit)
    assert bound(allocator, asked).gpus == ("small",)


def test_a_node_with_cards_of_two_pools_holds_both_sections():
    allocator = allocating(node(card("a"), card("b", pool="free")), oversubscription={"pool": TIGHT})
    bound(allocator, asks("x", amounts(1, 1), amounts(200, 1), pool="free"))
    assert isinstance(allocator.alloc(asks("y", amounts(1, 1), amounts(1, 1)), 0), Refusal)
    assert isinstance(allocator.alloc(asks("z", amounts(1, 1), amounts(1, 1), pool="free"), 0), Refusal)


def test_assume_refuses_what_find_would_refuse_and_changes_nothing():
    allocator = allocating(node(card("a"), card("b")), oversubscription={"pool": TIGHT})
    allocator.assume(asks("x", amounts(1, 1), amounts(60, 1), count=2), ["a", "b"], 0)
    before = dict(allocator.fleet.ledger), allocator.version
    refused = allocator.assume(asks("y", amounts(1, 1), amounts(81, 1)), ["a"], 0)
    assert isinstance(refused, Refusal)
    assert (refused.code, dict(allocator.fleet.ledger), allocator.version) == (Code.OVERSUBSCRIPTION, *before)
    assert isinstance(allocator.assume(asks("y", amounts(1, 1), amounts(80, 1)), ["a"], 0), Allocation)


def test_a_release_gives_the_promise_back():
    allocator = allocating(node(card("a")), oversubscription={"pool": TIGHT})
    bound(allocator, asks("x", amounts(1, 1), amounts(100, 1)))
    assert isinstance(allocator.alloc(asks("y", amounts(1, 1), amounts(100, 1)), 0), Refusal)
    allocator.dealloc("x", 1)
    bound(allocator, asks("y", amounts(1, 1), amounts(100, 1)))


def test_scaling_is_held_to_it_too_and_down_always_passes():
    allocator = allocating(node(card("a")), oversubscription={"pool": Oversubscription(0, 0, 200)})
    bound(allocator, asks("x", amounts(10, 1), amounts(100, 1)))
    bound(allocator, asks("y", amounts(10, 1), amounts(50, 1)))
    refused = allocator.adjust("y", AmountsChange(amounts(10, 1), amounts(101, 1)))
    assert isinstance(refused, Refusal)
    assert (refused.code, allocator.fleet.ledger["y"].claim.limit) == (Code.OVERSUBSCRIPTION, amounts(50, 1))
    assert isinstance(allocator.adjust("y", AmountsChange(amounts(10, 1), amounts(100, 1))), Adjustment)
    allocator.rules = replace(allocator.rules, oversubscription={"pool": TIGHT})
    assert isinstance(allocator.adjust("y", AmountsChange(amounts(5, 1), amounts(90, 1))), Adjustment)


# --- against an oracle ---


def promised(allocations: Iterable[Allocation], gpus: dict[str, Gpu], name: str) -> tuple[int, int]:
    """Limits times cards on a node, and never less than is charged, from the definitions."""
    compute = vram = 0
    for held in allocations:
        for uuid in held.gpus if held.node == name else ():
            gpu, limit, part = gpus[uuid], held.claim.limit, held.requirement.part
            charged = Part(gpu.compute_gflops, gpu.vram_bytes)
            if part is not None and held.requirement.cards.isolation is not Isolation.SHARED:
                charged = part
            each = [
                (one.compute_gflops or one.compute_ppm * gpu.compute_gflops // PPM, one.vram_bytes)
                for one in (charged, limit or charged)
            ]
            compute += max(one[0] for one in each)
            vram += max(one[1] for one in each)
    return compute, vram


NODES = (
    node(card("a1"), card("a2", 50, 8), name="a", memory_gib=10),
    node(card("b1", 40, 16), card("b2", pool="free"), name="b", memory_gib=10),
    node(card("c1"), card("c2"), name="c"),
)
GPUS = {gpu.uuid: gpu for one in NODES for gpu in one.gpus}
SECTIONS = {"pool": Oversubscription(50, 50, 110)}
DISKS = {"c": 8 * GIB}

absolute = st.builds(amounts, st.integers(0, 12).map(lambda n: n * 10), st.integers(0, 12))
relative = st.builds(lambda percent, gib: amounts(0, gib, percent), st.integers(1, 100), st.integers(0, 12))


def covered(step: tuple[Part | None, Part | None, int, str | None, bool]) -> bool:
    """Whether something is asked, and the limit is at least that."""
    asked, limit = step[:2]
    try:
        (limit or Part()).check_covers(asked or Part())
    except InvalidRequest:
        return False
    return asked != Part()


wanted = st.tuples(
    st.one_of(st.none(), absolute, relative),
    st.one_of(st.none(), absolute, relative),
    st.integers(1, 2),
    st.sampled_from(["pool", "free", None]),
    st.booleans(),
).filter(covered)


def most(name: str) -> tuple[int, int]:
    """The virtual capacity of a node, from its definition; all nodes have a card of the pool with the section."""
    one = next(one for one in NODES if one.name == name)
    compute, vram = sum(gpu.compute_gflops for gpu in one.gpus), sum(gpu.vram_bytes for gpu in one.gpus)
    return compute * 110 // 100, vram + one.memory_bytes * 50 // 100 + DISKS.get(name, 0) * 50 // 100


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(wanted, min_size=1, max_size=14))
def test_limits_never_exceed_virtual_capacity_and_every_way_to_ask_agrees(steps):
    bounded = allocating(*NODES, oversubscription=SECTIONS, disks=DISKS)
    for number, (request, limit, count, pool, drop) in enumerate(steps):
        asked = asks(str(number), request, limit, count, pool)
        fleet, rules = bounded.fleet, bounded.rules
        candidates = find(fleet, rules, asked)
        slow = select(fleet, rules, asked, candidates.by_node) if candidates.by_node else None
        fast = place(fleet, rules, asked)
        assert (fast if slow is not None else None) == slow
        assert isinstance(fast, Refusal) == (slow is None)
        free = find(fleet, replace(rules, oversubscription={}), asked)
        allowed = {uuid for uuids in candidates.by_node.values() for uuid in uuids}
        if count == 1:
            for name, uuids in free.by_node.items():
                for uuid in uuids:
                    assert (uuid in allowed) == fits(bounded, asked, name, uuid)
        answer = bounded.alloc(asked, number)
        assert isinstance(answer, Refusal) == isinstance(fast, Refusal)
        for one in NODES:
            held = promised(fleet.ledger.values(), GPUS, one.name)
            assert all(have <= cap for have, cap in zip(held, most(one.name), strict=True))
            assert node_capacity(fleet, one.name, SECTIONS, DISKS).virtual_deficit == amounts()
        if drop:
            bounded.dealloc(str(number // 2), number)


def fits(allocator: FleetAllocator, asked: Request, name: str, uuid: str) -> bool:
    """Whether the oracle lets this card be promised, found by entering it in the ledger by hand."""
    held = Allocation(asked.uid, name, asked.requirement, (uuid,), claim=asked.claim)
    before = promised(allocator.fleet.ledger.values(), GPUS, name)
    after = promised([*allocator.fleet.ledger.values(), held], GPUS, name)
    return all(new <= cap or new == old for old, new, cap in zip(before, after, most(name), strict=True))
