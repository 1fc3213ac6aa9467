"""Changes of size on cards that do not say what they have: their books are in millionths."""

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Part
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

GIB = 1 << 30


def percent(n: int) -> Part:
    return Part(compute_ppm=n * 10_000)


def holding(*gpus: Gpu, text: str = "gpu=0.5", limit: Part | None = None) -> FleetAllocator:
    allocator = FleetAllocator(Fleet((Node("n", 8000, 64 * GIB, gpus),)))
    allocator.set_ready()
    asked = Request("p", ResourceRequirement.from_string(text), Claim(limit=limit))
    assert isinstance(allocator.alloc(asked, 0.0), Allocation)
    return allocator


def test_amounts_are_in_millionths_where_the_card_says_nothing():
    outcome = holding(Gpu("g", 0), limit=percent(50)).adjust("p", AmountsChange(percent(60)))
    assert isinstance(outcome, Adjustment)
    assert outcome.known == (False, False)
    assert outcome.remain == (400_000, 1_000_000)
    assert (outcome.delta_request, outcome.delta_limit) == ((100_000, -500_000), (100_000, 0))


def test_what_a_card_says_is_in_its_unit_beside_what_it_does_not_say():
    outcome = holding(Gpu("g", 0, vram_bytes=40 * GIB), text="percent=50,vram=10g").adjust(
        "p", AmountsChange(Part(0, 4 * GIB, 250_000))
    )
    assert isinstance(outcome, Adjustment)
    assert (outcome.known, outcome.remain) == ((False, True), (750_000, 36 * GIB))
    assert outcome.delta_request == (-250_000, -6 * GIB)


def test_cards_of_which_one_says_nothing_are_compared_in_millionths():
    gpus = Gpu("a", 0, compute_gflops=200_000), Gpu("b", 1)
    outcome = holding(*gpus, text="gpu=2,percent=50").adjust("p", AmountsChange(percent(75)))
    assert isinstance(outcome, Adjustment)
    assert (outcome.known, outcome.remain, outcome.delta_request) == (
        (False, False), (250_000, 1_000_000), (250_000, 0)
    )  # fmt: skip


def test_too_much_of_a_card_that_says_nothing_is_refused_with_the_part_that_would_pass():
    allocator = holding(Gpu("g", 0))
    other = Request("q", ResourceRequirement.from_string("gpu=0.25"))
    assert isinstance(allocator.alloc(other, 0.0), Allocation)
    refusal = allocator.adjust("p", AmountsChange(percent(80)))
    assert isinstance(refusal, ScalingRefusal)
    assert (refusal.known, refusal.max_request, refusal.remain) == ((False, False), (750_000, 750_000), (250_000,) * 2)
    reported = refusal.rejections[1]
    assert (reported.code, reported.cure, reported.needed, reported.had) == (
        Code.GPU_SHARE,
        Cure.CAPACITY,
        800_000,
        750_000,
    )
    assert isinstance(allocator.adjust("p", AmountsChange(percent(75))), Adjustment)


@pytest.mark.parametrize("amounts", [Part(compute_gflops=1), Part(vram_bytes=1)])
def test_an_amount_in_units_cannot_be_judged_on_a_card_that_says_nothing(amounts):
    allocator = holding(Gpu("g", 0))
    before = allocator.held("p")
    refusal = allocator.adjust("p", AmountsChange(amounts))
    assert (refusal.code, refusal.curable) == (Code.CAPACITY_UNKNOWN, False)
    assert allocator.held("p") == before


def test_a_limit_in_units_comes_to_nothing_on_a_card_that_says_nothing():
    allocator = holding(Gpu("g", 0), limit=Part(80_000, GIB))
    outcome = allocator.adjust("p", AmountsChange(percent(60), Part(90_000, 2 * GIB)))
    assert isinstance(outcome, Adjustment)
    assert outcome.delta_limit == (0, 0)
