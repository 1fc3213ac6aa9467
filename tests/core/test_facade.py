"""The allocator as one import: ready at once, and its answers can be read."""

from __future__ import annotations

import pytest

from ullage.allocator import Allocation, Allocator, AmountsChange, Gpu, Node, Part, Refusal, Request
from ullage.model.error import InvalidRequest, NotFound

GIB = 2**30
NODES = [
    Node("a", 8000, 2**36, (Gpu("a-0", 0, vram_bytes=40 * GIB, compute_gflops=100_000), Gpu("a-1", 1))),
    Node("b", 8000, 2**36, (Gpu("b-0", 0, vram_bytes=40 * GIB),), cordoned=True),
]


def test_a_first_decision_needs_machines_and_a_text():
    allocator = Allocator(NODES)
    held = allocator.alloc(Request.of("pod", "vram=10g"), 0.0)
    assert isinstance(held, Allocation)
    assert held.gpus == ("a-0",)
    again = Allocator(NODES, held=[held])
    assert again.held("pod") == held


def test_what_is_free_is_told_of_each_card():
    allocator = Allocator(NODES)
    allocator.alloc(Request.of("pod", "vram=10g"), 0.0)
    free = allocator.free()
    assert free["a-0"] == ("a", 100_000, 30 * GIB, 0.75, 1, True)
    assert free["a-1"] == ("a", None, None, 1.0, 0, True)
    assert free["b-0"] == ("b", None, 40 * GIB, 1.0, 0, False)
    assert allocator.free("b").keys() == {"b-0"}
    with pytest.raises(NotFound):
        allocator.free("c")


def test_a_card_that_shrank_below_its_use_has_nothing_free():
    allocator = Allocator(NODES)
    allocator.alloc(Request.of("pod", "vram=30g"), 0.0)
    allocator.set_nodes([Node("a", 8000, 2**36, (Gpu("a-0", 0, vram_bytes=20 * GIB, compute_gflops=100_000),))])
    assert allocator.free()["a-0"][2:4] == (0, 0.0)


def test_a_refusal_is_a_sentence_and_its_repr_is_short():
    allocator = Allocator(NODES)
    refused = allocator.alloc(Request.of("pod", "vram=41g"), 0.0)
    assert isinstance(refused, Refusal)
    assert str(refused) == "insufficient-vram: needs 41Gi vram, a-0 has 40Gi"
    assert repr(refused) == "<Refusal insufficient-vram, 2 rejections, curable=False>"
    allocator.alloc(Request.of("pod", "vram=30g"), 0.0)
    more = allocator.adjust("pod", AmountsChange(Part(vram_bytes=41 * GIB)))
    assert str(more) == (
        "scaling-exceeded: a card of the allocation does not have that much more, needs 41Gi vram, a-0 has 40Gi"
    )


def test_a_request_that_cannot_be_read_is_an_error():
    with pytest.raises(InvalidRequest):
        Request.of("pod", "cpu=1")
