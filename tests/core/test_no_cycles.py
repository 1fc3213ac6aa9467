"""An answer ends with its last reader: on large clusters its arrays are too large to wait for the garbage collector."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.books import NOW, a_card, a_node, ask

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request

REQUESTS = (
    ask("gpu=1", uid="one"),
    ask("tflops=50,vram=8g", uid="part"),
    ask("gpu=3,cpu=1", uid="wide"),
    ask("gpu=9", uid="too-wide"),
    ask("gpu=1,cpu=500", uid="no-cpu"),
    ask("gpu=1,gpu_model=B300", uid="no-model"),
    ask("tflops=10,vram=90g", uid="too-large"),
)


@pytest.fixture
def allocator() -> FleetAllocator:
    allocator = FleetAllocator(
        Fleet(a_node(f"n{n}", *(a_card(f"g{n}-{k}", 100, 40) for k in range(2 + n))) for n in range(3)), Rules()
    )
    allocator.set_ready()
    for number in range(4):
        assert isinstance(allocator.alloc(ask("gpu=1", uid=f"held-{number}"), NOW), Allocation)
    return allocator


@pytest.fixture
def collected_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def allocated(allocator: FleetAllocator, request: Request) -> None:
    placed = allocator.alloc(request, NOW)
    if isinstance(placed, Refusal):
        assert str(placed)
    else:
        allocator.dealloc(placed.id, NOW)


@pytest.mark.parametrize(
    "use",
    [
        allocated,
        lambda allocator, request: allocator.check_quota_and_filter(request),
        lambda allocator, request: repr(allocator.check_quota_and_filter(request)),
        lambda allocator, request: allocator.simulate(request),
        lambda allocator, request: allocator.preempt(replace(request, claim=Claim("team", priority=20)), NOW),
    ],
    ids=["alloc", "filter", "read", "simulate", "preempt"],
)
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.uid)
@pytest.mark.usefixtures("collected_by_hand")
def test_no_answer_refers_to_itself(
    allocator: FleetAllocator, use: Callable[[FleetAllocator, Request], object], request_: Request
) -> None:
    for _ in range(2):  # the first use fills caches, and the second one loads what only a later use needs
        use(allocator, request_)
    gc.collect()
    use(allocator, request_)
    assert gc.collect() == 0
