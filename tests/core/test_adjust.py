"""Changes of size on cards that do not say what they have: their books are in millionths."""

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Part
from ullage.model.quota import Caps, Quota
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


def capped(quota: Quota, limit: Part | None = None) -> FleetAllocator:
    """Return books where `p` has 10 TFLOPS and 4 GiB of a card of 100 TFLOPS and 40 GiB, and `q` as much of it.

    With the limit of `q` the node may promise as much as it has.
    """
    gpu = Gpu("g", 0, compute_gflops=100_000, vram_bytes=40 * GIB)
    rules = Rules(
        quotas=Quotas({"default": quota}),
        oversubscription={} if limit is None else {"": Oversubscription(compute_oversell_ratio=100)},
    )
    allocator = FleetAllocator(Fleet((Node("n", 8000, 64 * GIB, (gpu,)),)), rules)
    allocator.set_ready()
    for uid, most in (("p", None), ("q", limit)):
        asked = Request(uid, ResourceRequirement.from_string("tflops=10,vram=4g"), Claim(limit=most))
        assert isinstance(allocator.alloc(asked, 0.0), Allocation)
    return allocator


@pytest.mark.parametrize(
    ("quota", "most"),
    [
        (Quota(max_requests=Caps(30_000, 6 * GIB)), (30_000, 6 * GIB)),
        (Quota(max_limits=Caps(40_000)), (40_000, 36 * GIB)),
        (Quota(total_requests=Caps(60_000)), (50_000, 36 * GIB)),
        (Quota(total_limits=Caps(None, 12 * GIB)), (90_000, 8 * GIB)),
        (Quota(total_limits=Caps(60_000, 12 * GIB), max_requests=Caps(45_000)), (45_000, 8 * GIB)),
        (Quota(), (90_000, 36 * GIB)),
    ],
)
@pytest.mark.parametrize("asked", [Part(95_000, 4 * GIB), Part(50_001, 40 * GIB), Part(95_000, 39 * GIB)])
def test_the_largest_request_that_would_pass_passes_quotas_too(quota, most, asked):
    allocator = capped(quota)
    refusal = allocator.adjust("p", AmountsChange(asked))
    assert isinstance(refusal, ScalingRefusal)
    assert refusal.max_request == most
    for more in (Part(most[0] + 1, most[1]), Part(most[0], most[1] + 1)):
        assert isinstance(allocator.adjust("p", AmountsChange(more), dry_run=True), ScalingRefusal)
    assert isinstance(allocator.adjust("p", AmountsChange(Part(*most))), Adjustment)


def test_a_change_that_a_quota_refuses_has_the_largest_request_that_would_pass():
    refusal = capped(Quota(total_requests=Caps(60_000))).adjust("p", AmountsChange(Part(70_000, 4 * GIB)))
    assert isinstance(refusal, ScalingRefusal)
    assert (refusal.code, refusal.max_request) == (Code.QUOTA_TOTAL_COMPUTE_REQUEST, (50_000, 36 * GIB))
    assert str(refusal).startswith("total.max.tflops.request: ")


def test_the_largest_request_that_would_pass_is_within_what_the_node_may_promise():
    allocator = capped(Quota(), limit=Part(80_000, 4 * GIB))
    refusal = allocator.adjust("p", AmountsChange(Part(95_000, 4 * GIB)))
    assert isinstance(refusal, ScalingRefusal)
    assert refusal.max_request.compute == 20_000
    assert isinstance(allocator.adjust("p", AmountsChange(Part(*refusal.max_request))), Adjustment)


def test_with_a_limit_that_no_quota_allows_nothing_would_pass():
    quota = Quota(max_limits=Caps(20_000, GIB * 8))
    refusal = capped(quota).adjust("p", AmountsChange(Part(15_000, 4 * GIB), Part(30_000, 9 * GIB)))
    assert isinstance(refusal, ScalingRefusal)
    assert refusal.max_request == (0, 0)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_change_to_no_amounts_is_refused_as_such_a_request_is(dry_run: bool):
    held = holding(Gpu("g", 0, compute_gflops=100_000, vram_bytes=40 * GIB))
    with pytest.raises(InvalidRequest, match=r"^request: no amount of its cards .* or free its cards"):
        held.adjust("p", AmountsChange(Part()), dry_run=dry_run)
    whole = holding(Gpu("g", 0, compute_gflops=100_000, vram_bytes=40 * GIB), text="gpu=1")
    assert isinstance(whole.adjust("p", AmountsChange(Part()), dry_run=dry_run), Adjustment), "it holds the card"
