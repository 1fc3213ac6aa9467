"""A limit is never less than what is asked, and counts in quotas as no less than what is charged."""

from __future__ import annotations

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.adjust import AmountsChange
from ullage.core.placing.decision import Refusal
from ullage.core.placing.feasibility import runs
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.sentences import reject_text
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Part
from ullage.model.profile import Profile, Profiles, Vendor
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.template import Template

GIB = 2**30


def a_card(index: int) -> Gpu:
    return Gpu(f"g{index}", index, model="A100-SXM4-80GB", vram_bytes=80 * GIB, compute_gflops=100_000)


def allocator(**rules: object) -> FleetAllocator:
    found = FleetAllocator(Fleet([Node("n", 8000, 2**36, tuple(map(a_card, range(4))))]), Rules(**rules))
    found.set_ready()
    return found


def under_limits(tflops: int, gib: int) -> FleetAllocator:
    return allocator(quotas=Quotas({"team": Quota(total_limits=Caps(tflops * 1000, gib * GIB))}))


def ask(uid: str, text: str, limit: Part | None = None, *, as_written: bool = False) -> Request:
    claim = Claim("team", limit=limit, counts_as_written=as_written)
    return Request(uid, ResourceRequirement.from_string(text), claim)


@pytest.mark.parametrize(
    ("text", "limit", "counts"),
    [
        pytest.param("isolation=shared,tflops=10", Part(10_000), (100_000, 80 * GIB), id="a card held whole"),
        pytest.param("gpu=1", Part(10_000, GIB), (100_000, 80 * GIB), id="a whole card"),
        pytest.param("partition=3g.40gb,tflops=10", Part(10_000, GIB), (42_857, 40 * GIB), id="a slice of hardware"),
        pytest.param("tflops=10,vram=1g", Part(vram_bytes=2 * GIB), (10_000, 2 * GIB), id="no limit on compute"),
        pytest.param("tflops=10,vram=1g", Part(20_000, 2 * GIB), (20_000, 2 * GIB), id="a limit above the request"),
    ],
)
def test_a_limit_counts_as_no_less_than_the_charge(text, limit, counts):
    free = allocator()
    held = free.alloc(ask("held", text, limit), 0.0)
    assert isinstance(held, Allocation)
    used = free.fleet.usage["team"]
    assert (used.compute_limit, used.vram_limit) == counts
    short = allocator(quotas=Quotas({"team": Quota(total_limits=Caps(counts[0] - 1, None))}))
    refused = short.alloc(ask("held", text, limit), 0.0)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.QUOTA_TOTAL_COMPUTE_LIMIT
    exact = allocator(quotas=Quotas({"team": Quota(total_limits=Caps(*counts))}))
    assert isinstance(exact.alloc(ask("held", text, limit), 0.0), Allocation)


def test_two_cards_held_whole_do_not_fit_under_limits_of_half_a_card():
    outcome = under_limits(50, 500).alloc(ask("a", "isolation=shared,tflops=10", Part(10_000)), 0.0)
    assert isinstance(outcome, Refusal)
    assert outcome.code is Code.QUOTA_TOTAL_COMPUTE_LIMIT
    assert outcome.rejections[0].needed == 100_000


def test_a_node_promises_a_card_that_is_held_whole_as_a_whole():
    section = {"": Oversubscription(0, 0, 100)}
    books = allocator(oversubscription=section)
    for uid in "abc":
        assert isinstance(books.alloc(ask(uid, "isolation=shared,tflops=1", Part(1000)), 0.0), Allocation)
    refused = books.alloc(ask("d", "tflops=10", Part(100_001)), 0.0)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.OVERSUBSCRIPTION
    assert refused.rejections[0].had == 100_000


def test_a_request_that_takes_cards_whole_for_their_cores_alone_counts_what_it_names():
    books = under_limits(1000, 4)
    asked = ask("a", "gpu=2,percent=100,vram=2g,isolation=shared", Part(0, 2 * GIB, 1_000_000), as_written=True)
    assert isinstance(books.alloc(asked, 0.0), Allocation)
    assert books.fleet.usage["team"].vram_limit == 4 * GIB
    assert books.fleet.usage["team"].cores_ppm == 2_000_000


@pytest.mark.parametrize(
    ("text", "limit", "field"),
    [
        ("tflops=10", Part(9_999), "limit.tflops"),
        ("vram=2g", Part(vram_bytes=GIB), "limit.vram"),
        ("percent=50", Part(compute_ppm=400_000), "limit.percent"),
    ],
)
def test_a_limit_below_the_request_is_refused_by_every_way_to_ask(text, limit, field):
    books = allocator()
    asked = ask("a", text, limit)
    for way in (
        lambda: books.alloc(asked, 0.0),
        lambda: books.simulate(asked),
        lambda: books.check_quota_and_filter(asked),
        lambda: books.assume(asked, ["g0"], 0.0),
        lambda: books.bind(asked, ["g0"], 0.0),
        lambda: books.assume_on(asked, "n", 0.0),
        lambda: books.preempt(asked, 0.0),
    ):
        with pytest.raises(InvalidRequest) as error:
            way()
        assert error.value.field == field
    assert not books.fleet.ledger


@pytest.mark.parametrize("text", ["tflops=0", "vram=0", "gpu=2,tflops=0,vram=0", "vram=0,isolation=hard"])
def test_a_request_for_nothing_of_a_card_is_refused(text):
    books = allocator()
    for way in (
        lambda: books.alloc(ask("a", text), 0.0),
        lambda: books.simulate(ask("a", text)),
        lambda: books.check_quota_and_filter(ask("a", text)),
        lambda: books.bind(ask("a", text), ["g0"], 0.0),
    ):
        with pytest.raises(InvalidRequest, match=r"^resreq: no amount of its cards is requested"):
            way()
    assert isinstance(books.alloc(ask("b", "gpu=4"), 0.0), Allocation)


def test_growth_without_room_tells_what_is_free_from_what_is_held():
    books = allocator()
    for uid, text in (("a", "tflops=30,vram=1g,gpu_index=0"), ("b", "tflops=10,vram=1g,gpu_index=0")):
        assert isinstance(books.alloc(ask(uid, text), 0.0), Allocation)
    refused = books.adjust("b", AmountsChange(Part(90_000, GIB)))
    assert isinstance(refused, Refusal)
    assert reject_text(refused.rejections[1]) == (
        "needs 90 TFLOPS compute, g0 has free 60 TFLOPS besides the 10 TFLOPS it holds"
    )


def test_a_contradiction_is_told_in_the_units_that_people_write():
    with pytest.raises(InvalidRequest, match=r"percent: '5'.*tflops are given too"):
        ResourceRequirement.from_string("percent=5,tflops=10")


def test_a_resource_that_is_used_up_is_named():
    card = Gpu("g0", 0, model="Ascend310P3", vendor="ascend", vram_bytes=24 * GIB, compute_gflops=22_000)
    books = FleetAllocator(Fleet([Node("n", 8000, 2**36, (card,))], profiles=Profiles((_SMALL,))))
    books.set_ready()
    assert isinstance(books.alloc(ask("a", "partition=half"), 0.0), Allocation)
    refused = books.alloc(ask("b", "partition=half"), 0.0)
    assert isinstance(refused, Refusal)
    (reported,) = refused.rejections
    assert (reported.code, reported.resource, reported.needed, reported.had) == (Code.EXTENDED_RESOURCE, "AICPU", 4, 3)
    assert reject_text(reported).endswith("it needs 4 of AICPU, g0 has 3 left")


_SMALL = Profile(
    "Ascend310P3",
    Vendor.ASCEND,
    (Template("half", 6 * GIB, 250_000, 2, extended=(("AICORE", 4), ("AICPU", 4))),),
    extended=(("AICORE", 8), ("AICPU", 7)),
)


def test_a_limit_that_counts_as_written_says_nothing_of_one_that_does_not():
    """Both ask the same, and one was decided before the other."""
    books = under_limits(500, 100)
    limit = Part(vram_bytes=2 * GIB)
    assert isinstance(books.alloc(ask("written", "gpu=1", limit, as_written=True), 0.0), Allocation)
    assert isinstance(books.alloc(ask("charged", "gpu=1", limit), 0.0), Allocation)
    refused = books.alloc(ask("more", "gpu=1", limit), 0.0)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.QUOTA_TOTAL_VRAM_LIMIT
    assert books.fleet.usage["team"].vram_limit == 82 * GIB


def test_requests_whose_limits_count_differently_are_not_placed_as_equals():
    limit = Part(vram_bytes=2 * GIB)
    requests = [ask(str(n), "gpu=1", limit, as_written=n > 0) for n in range(3)]
    assert [[request.uid for request in run] for run in runs(requests)] == [["0"], ["1", "2"]]
