"""The client of requests for cards, on a real server with four cards of 100 TFLOPS and 40 GiB."""

import pytest

import ullage
from ullage.client.answer import RefusedAnswer
from ullage.model.error import Conflict, NotFound
from ullage.wire.allocation import AdjustAllocation, CreateAllocation, PartMap, PutQuotaBody, QuotaTotal
from ullage.wire.gang import PutGangBody


@pytest.fixture
def cards(http):
    with ullage.connect() as client:
        yield client.allocations()


def test_a_refusal_carries_its_stages_and_the_most_that_would_pass(cards):
    with pytest.raises(RefusedAnswer) as refused:
        cards.create(CreateAllocation(uid="p", resreq="vram=41g"))
    assert (refused.value.code, refused.value.refusal.curable) == ("insufficient-vram", False)
    assert "room" in {stage.name for stage in refused.value.refusal.stages}
    cards.create(CreateAllocation(uid="p", resreq="tflops=50,vram=10g", limit=PartMap(tflops=60)))
    with pytest.raises(RefusedAnswer) as refused:
        cards.adjust("p", AdjustAllocation(request=PartMap(tflops=101), dry_run=True))
    assert refused.value.refusal.max_request.compute_gflops == 100_000


def test_other_conflicts_have_no_refusal(cards):
    with pytest.raises(Conflict) as conflict:
        cards.commit("p")
    assert (type(conflict.value), conflict.value.code) == (Conflict, "not-assumed")


def test_an_assumption_is_committed_and_forgotten(cards):
    assert cards.create(CreateAllocation(uid="p", resreq="gpu=1", commit=False)).state == "assumed"
    assert cards.commit("p").state == "bound"
    cards.forget("p")
    with pytest.raises(NotFound):
        cards.get("p")


def test_a_gang_is_asked_for_shown_and_ended(cards):
    members = [CreateAllocation(uid=uid, resreq="gpu=1") for uid in ("a", "b")]
    assert cards.put_gang("g", PutGangBody(members=members)).phase == "running"
    assert [member.allocation.state for member in cards.gang("g").members] == ["bound", "bound"]
    cards.drop_gang("g")
    assert cards.all() == []


def test_a_quota_is_put_shown_and_dropped(cards):
    put = cards.put_quota("team", PutQuotaBody(total=QuotaTotal(max_workers=3)))
    assert cards.quota("team") == put
    assert cards.quotas() == [put]
    cards.drop_quota("team")
    with pytest.raises(NotFound):
        cards.quota("team")
