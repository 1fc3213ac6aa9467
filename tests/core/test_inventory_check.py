"""Books are kept only of machines and cards that have names of their own and amounts that can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

GIB = 2**30
CARD = Gpu("g0", 0, vram_bytes=40 * GIB, compute_gflops=100_000)
NODE = Node("a", 8000, 2**36, (CARD,))
OTHER = Node("b", 8000, 2**36, (replace(CARD, uuid="g1"),))


def of_card(**facts: object) -> list[Node]:
    return [replace(NODE, gpus=(replace(CARD, **facts),))]


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        pytest.param([NODE, replace(OTHER, gpus=(CARD,))], "duplicate-card", "'g0' .* on a and on b", id="two nodes"),
        pytest.param([replace(NODE, gpus=(CARD, CARD))], "duplicate-card", "'g0' .* twice, on a", id="one node"),
        pytest.param([NODE, replace(OTHER, name="a")], "duplicate-node", "'a'", id="one name"),
        pytest.param(of_card(vram_bytes=-1), "amount-out-of-range", "a: g0: vram_bytes", id="vram"),
        pytest.param(of_card(compute_gflops=-1), "amount-out-of-range", "a: g0: compute_gflops", id="compute"),
        pytest.param(of_card(vram_bytes=2**63), "amount-out-of-range", "a: g0: vram_bytes", id="too much"),
        pytest.param(of_card(vram_bytes=1.5), "amount-out-of-range", "a: g0: vram_bytes", id="no whole number"),
        pytest.param(of_card(max_users=-1), "amount-out-of-range", "a: g0: max_users", id="users"),
        pytest.param([replace(NODE, cpu_milli=-1)], "amount-out-of-range", "a: cpu_milli", id="cpus"),
        pytest.param([replace(NODE, memory_bytes=-1)], "amount-out-of-range", "a: memory_bytes", id="memory"),
        pytest.param([replace(NODE, max_executors=-1)], "amount-out-of-range", "a: max_executors", id="executors"),
    ],
)
def test_an_inventory_that_cannot_be_is_refused_before_anything_changes(nodes, code, words):
    with pytest.raises(InvalidRequest, match=words) as error:
        Fleet(nodes)
    assert error.value.code == code
    allocator = FleetAllocator(Fleet([NODE, OTHER]))
    allocator.set_ready()
    held = allocator.alloc(Request("r", ResourceRequirement.from_string("vram=1g,gpu_uuid=g0")), 0.0)
    assert isinstance(held, Allocation)
    before, version = allocator.fleet, allocator.version
    with pytest.raises(InvalidRequest, match=words):
        allocator.set_nodes(nodes)
    assert allocator.fleet is before
    assert allocator.version == version
    assert allocator.dealloc("r", 1.0).gpus == ("g0",)
