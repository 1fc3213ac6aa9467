"""Room that is kept for nominated requests: for whom, from whom, where, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.books import GIB, NOW, Books, a_card, a_node, ask, capped, found_with, frozen, placed_with

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption, Preemption
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import fit_together
from ullage.core.placing.nomination import NO_NOMINATIONS, NOMINATED_TTL_S, Nominations
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import GangClaim
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Part
from ullage.model.rejection import Code


def uids(found: Preemption | NoPreemption) -> tuple[str, ...] | None:
    return found.uids if isinstance(found, Preemption) else None


def nominated(*entries: Nomination) -> Nominations:
    nominations = NO_NOMINATIONS
    for entry in entries:
        nominations = nominations.with_(entry)
    return nominations


@pytest.mark.parametrize(
    ("facts", "own", "holds"),
    [
        pytest.param({"priority": 11}, {}, True, id="of higher priority"),
        pytest.param({"priority": 10}, {}, False, id="of equal priority"),
        pytest.param({"priority": 9}, {}, False, id="of lower priority"),
        pytest.param({"gang": "g"}, {"gang": "g"}, True, id="of equal priority in the same gang"),
        pytest.param({"gang": "g"}, {"gang": "h"}, False, id="of another gang"),
        pytest.param({"gang": "g", "priority": 9}, {"gang": "g"}, False, id="of the gang and lower"),
        pytest.param({"uid": "new", "priority": 11}, {}, False, id="itself"),
    ],
)
def test_room_is_kept_for_a_nominated_request(facts, own, holds):
    books = Books(a_node("n"))
    both = [{**f, "gang": GangClaim(f["gang"], 1, 2)} if "gang" in f else f for f in (facts, own)]
    nominations = nominated(Nomination(ask("tflops=80", **{"uid": "first", **both[0]}), "n"))
    before = frozen(books.fleet)
    chosen = placed_with(books.fleet, Rules(), ask("tflops=30", **both[1]), nominations)
    assert frozen(books.fleet) == before
    assert isinstance(chosen, Refusal if holds else Choice)
    if isinstance(chosen, Refusal):
        assert chosen.code is Code.NOMINATED
        assert (chosen.rejections[0].needed, chosen.rejections[0].had) == (30_000, 20_000)
    assert isinstance(placed_with(books.fleet, Rules(), ask("tflops=20", **both[1]), nominations), Choice)


def test_who_comes_first_keeps_its_equals_out_but_who_came_before_it():
    books = Books(a_node("n", a_card("n-0")))
    first, second = (Nomination(ask("tflops=80", uid, priority=10), "n", first_come=True) for uid in ("p", "q"))
    nominations = nominated(first, second)

    def ahead(uid: str, priority: int = 10) -> list[str]:
        found = nominations.before(books.fleet, ask("tflops=80", uid, priority=priority))
        return [entry.request.uid for entry in found]

    assert (ahead("p"), ahead("q"), ahead("new"), ahead("new", 11)) == ([], ["p"], ["p", "q"], [])
    nominations = nominated(second, replace(first, first_come=False))
    assert (ahead("p"), ahead("q"), ahead("new")) == (["q"], [], ["q"])


def test_room_is_kept_until_the_request_is_placed_or_gone():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    nominations = nominated(Nomination(ask("gpu=2,tflops=80", "first", priority=11), "n", since=NOW))
    assert not found_with(books.fleet, Rules(), ask("tflops=30"), nominations).by_node
    assert found_with(books.fleet, Rules(), ask("tflops=30"), nominations.without("first")).by_node
    books.run("first", "n-0", of="tflops=80")
    assert found_with(books.fleet, Rules(), ask("tflops=30"), nominations).by_node == {"n": ("n-1",)}


def test_room_is_kept_per_card_where_it_fits_best():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"), a_card("n-2"))).run("v", "n-1", of="tflops=50")
    nominations = nominated(Nomination(ask("tflops=40", "first", priority=11), "n"))
    found = found_with(books.fleet, Rules(), ask("tflops=60"), nominations)
    assert found.by_node == {"n": ("n-0", "n-2")}
    found = found_with(books.fleet, Rules(), ask("tflops=20"), nominations)
    assert found.by_node == {"n": ("n-0", "n-2")}
    assert {r.gpu: r.code for stage in found.stages for r in stage.removed} == {"n-1": Code.NOMINATED}


def test_several_nominated_requests_keep_room_beside_each_other():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    entries = [Nomination(ask("tflops=60", f"first-{n}", priority=11), "n") for n in range(2)]
    assert found_with(books.fleet, Rules(), ask("tflops=50"), nominated(entries[0])).by_node == {"n": ("n-1",)}
    assert not found_with(books.fleet, Rules(), ask("tflops=50"), nominated(*entries)).by_node


def test_a_request_for_several_cards_keeps_room_on_each_also_while_others_leave():
    books = Books(a_node("n", *(a_card(f"n-{n}") for n in range(3)))).run("busy", "n-0", of="tflops=70", priority=20)
    books.run("leaving", "n-1", of="tflops=70", state=AllocationState.RELEASING)
    nominations = nominated(Nomination(ask("gpu=2,tflops=90", "first", priority=11), "n"))
    assert found_with(books.fleet, Rules(), ask("tflops=30"), nominations).by_node == {"n": ("n-0",)}
    books.fleet.release("leaving")
    assert found_with(books.fleet, Rules(), ask("tflops=30"), nominations).by_node == {"n": ("n-0",)}


def test_what_a_preemption_frees_is_kept_for_whom_it_was_freed():
    books = Books(a_node("m"), a_node("n")).run("v", "n-0", of="tflops=50").run("peer", "m-0", of="", priority=30)
    first = ask(uid="first", priority=20)
    found = books.preempt(first)
    assert isinstance(found, Preemption)
    nominations = nominated(found.nomination(first, NOW))
    books.fleet.release("v")
    refused = books.preempt(ask("tflops=30"), nominations=nominations)
    assert isinstance(refused, NoPreemption)
    assert refused.code is Code.NOMINATED
    assert uids(books.preempt(first, nominations=nominations)) == ()


def test_nobody_more_is_evicted_while_victims_leave():
    books = Books(a_node("m"), a_node("n")).run("v", "n-0", state=AllocationState.RELEASING).run("w", "m-0")
    nominations = nominated(Nomination(ask(), "n", NOW, ("n-0",), (Charge(80_000, 8 * GIB),)))
    waits = books.preempt(ask(), nominations=nominations)
    assert isinstance(waits, NoPreemption)
    assert (waits.code, waits.attempts) == (Code.EVICTING, ())
    assert uids(books.preempt(ask(priority=9), nominations=nominations.without("new"))) == ("w",)
    larger = ask("tflops=80,vram=8g", priority=10)
    books.run("x", "n-0", of="tflops=30", priority=20)
    assert uids(books.preempt(larger, nominations=nominations)) == ("w",)


def test_kept_room_counts_in_no_quota_and_is_no_victim():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-1", of="tflops=90", priority=1)
    nominations = nominated(Nomination(ask("gpu=1", "first", priority=30), "n", gpus=("n-0",)))
    found = books.preempt(ask("tflops=80"), capped(tflops=100, workers=1), nominations=nominations)
    assert uids(found) == ("v",)


@pytest.mark.parametrize("entry", [("gone", ()), ("gone", ("n-0",)), ("n", ("gone-0",))])
def test_a_nomination_for_what_is_gone_stops_nobody_else(entry):
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    nominations = nominated(Nomination(ask("tflops=80", "first", priority=11), entry[0], gpus=entry[1]))
    assert isinstance(placed_with(books.fleet, Rules(), ask("tflops=100"), nominations), Choice)


# --- the allocator ---


def ready(*nodes: Node, nominations: Nominations = NO_NOMINATIONS) -> FleetAllocator:
    allocator = FleetAllocator(Fleet(nodes))
    allocator.nominations = nominations
    allocator.set_ready()
    return allocator


FIRST = Nomination(ask("tflops=80,vram=8g", "first", priority=11), "n", NOW, ("n-0",), (Charge(80_000, 8 * GIB),))


def test_every_look_and_every_placement_respects_kept_room():
    allocator = ready(a_node("n"), nominations=nominated(FIRST))
    before, request = frozen(allocator.fleet), ask("tflops=30,vram=1g")
    for refused in (
        allocator.alloc(request, NOW),
        allocator.assume(request, ["n-0"], NOW),
        allocator.bind(request, ["n-0"], NOW),
        allocator.check_quota_and_filter(request),
        allocator.simulate(request).outcome,
    ):
        assert isinstance(refused, Refusal)
        assert (refused.code, refused.curable) == (Code.NOMINATED, True)
    assert frozen(allocator.fleet) == before
    assert isinstance(allocator.alloc(replace(request, claim=replace(request.claim, priority=11)), NOW), Allocation)


def test_a_simulation_beside_kept_room_is_what_alloc_does():
    allocator = ready(a_node("n", a_card("n-0"), a_card("n-1")), nominations=nominated(FIRST))
    decision = allocator.simulate(ask("tflops=30"))
    assert isinstance(decision.outcome, Choice)
    placed = allocator.alloc(ask("tflops=30"), NOW)
    assert isinstance(placed, Allocation)
    assert placed.gpus == decision.outcome.gpus == ("n-1",)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param("tflops=30,vram=1g", (Code.NOMINATED, 30_000, 20_000), id="fits without them"),
        pytest.param("tflops=80,vram=1g", (Code.GPU_COMPUTE, 80_000, 70_000), id="fits neither way"),
        pytest.param("gpu=2,tflops=60,vram=1g", (Code.NOT_ENOUGH_CARDS, 2, 1), id="one of two cards fits without them"),
    ],
)
def test_a_plan_and_an_allocation_beside_kept_room_are_refused_alike(text, reported):
    allocator = ready(a_node("n", a_card("n-0"), a_card("n-1")), nominations=nominated(FIRST))
    allocator.nominations = NO_NOMINATIONS
    allocator.bind(ask("tflops=30,vram=1g", "old"), ["n-0"], NOW)
    allocator.bind(ask("tflops=90,vram=1g", "full"), ["n-1"], NOW)
    allocator.nominations = nominated(replace(FIRST, charges=(Charge(50_000, GIB),)))
    planned, refused = allocator.simulate(ask(text)).outcome, allocator.alloc(ask(text), NOW)
    assert isinstance(refused, Refusal)
    assert planned == refused == allocator.check_quota_and_filter(ask(text))
    first = refused.rejections[0]
    assert (first.code, first.needed, first.had) == reported


def test_who_grows_leaves_kept_room_alone_and_who_shrinks_may():
    allocator = ready(a_node("n"))
    allocator.alloc(ask("tflops=15,vram=1g", "small"), NOW)
    allocator.nominate(FIRST)
    refused = allocator.adjust("small", AmountsChange(Part(30_000, GIB)))
    assert isinstance(refused, ScalingRefusal)
    assert refused.max_request[0] == 20_000
    assert isinstance(allocator.adjust("small", AmountsChange(Part(20_000, GIB))), Adjustment)
    allocator.nominate(replace(FIRST, charges=(Charge(100_000, 8 * GIB),)))
    assert isinstance(allocator.adjust("small", AmountsChange(Part(10_000, GIB))), Adjustment)


def test_members_of_a_gang_are_placed_beside_kept_room():
    allocator = ready(a_node("n", a_card("n-0"), a_card("n-1")), nominations=nominated(FIRST))
    members = [ask("tflops=50", f"m{n}") for n in range(2)]
    found = fit_together(allocator.fleet, Rules(), members, NOW, allocator.nominations)
    assert isinstance(found, dict)
    assert {choice.gpus for choice in found.values()} == {("n-1",)}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda allocator: allocator.alloc(FIRST.request, NOW), id="placed"),
        pytest.param(lambda allocator: allocator.assume(FIRST.request, ["n-0"], NOW), id="assumed"),
        pytest.param(lambda allocator: allocator.forget("first", NOW), id="forgotten"),
        pytest.param(lambda allocator: allocator.unreserve("first", NOW), id="undone"),
        pytest.param(lambda allocator: allocator.dealloc("first", NOW), id="freed"),
        pytest.param(lambda allocator: allocator.dealloc_by_pod("team", "web", NOW), id="freed by pod"),
    ],
)
def test_a_nomination_ends_when_its_request_is_placed_forgotten_or_freed(end):
    allocator, entry = ready(a_node("n")), FIRST
    allocator.nominate(replace(entry, request=replace(entry.request, claim=replace(entry.request.claim, pod="web"))))
    version = allocator.version
    end(allocator)
    assert allocator.nominations == NO_NOMINATIONS
    assert allocator.version > version
    allocator.unreserve("first", NOW)
    assert isinstance(allocator.alloc(ask("tflops=100"), NOW), Allocation)


def test_asking_again_changes_only_the_time():
    allocator = ready(a_node("n"), nominations=nominated(FIRST))
    version = allocator.version
    allocator.nominate(replace(FIRST, since=NOW + 60))
    assert allocator.version == version
    assert allocator.nominations.lapsed(NOW + NOMINATED_TTL_S) == ()
    assert allocator.nominations.lapsed(NOW + 60 + NOMINATED_TTL_S) == ("first",)


def test_a_partition_that_is_assumed_lies_beside_the_kept_one():
    card = Gpu("n-0", 0, "NVIDIA A100 80GB", "NVIDIA", 80 * GIB, 312_000)
    asked = ask("gpu=1,tflops=1,vram=1g,isolation=partitioned")
    first = ask("gpu=1,tflops=1,vram=1g,isolation=partitioned", "first", priority=11)
    allocator = ready(a_node("n", card), nominations=nominated(Nomination(first, "n")))
    planned = allocator.simulate(asked).outcome
    assumed = allocator.assume(asked, ["n-0"], NOW)
    assert isinstance(planned, Choice)
    assert isinstance(assumed, Allocation)
    assert assumed.charges == planned.charges


@pytest.mark.parametrize(
    "come_after",
    [
        lambda allocator: allocator.alloc(ask("tflops=5,vram=1g", "late", limit=Part(20_000)), NOW),
        lambda allocator: allocator.adjust("old", AmountsChange(Part(5000, GIB), Part(20_000))),
    ],
    ids=["alloc", "adjust"],
)
def test_what_a_nominated_request_may_use_at_most_is_promised_to_nobody_else(come_after):
    exactly = Oversubscription(vram_expand_to_host_mem=0, compute_oversell_ratio=100)
    allocator = FleetAllocator(Fleet([a_node("n")]), Rules(oversubscription={"": exactly}))
    allocator.set_ready()
    allocator.alloc(ask("tflops=5,vram=1g", "old", limit=Part(5000)), NOW)
    first = ask("tflops=70,vram=1g", "first", priority=11, limit=Part(90_000))
    allocator.nominate(Nomination(first, "n"))
    assert isinstance(come_after(allocator), Refusal)
    assert "" not in allocator.fleet.usage
    assert isinstance(allocator.alloc(first, NOW), Allocation)


# --- whatever happens ---

texts = st.sampled_from(["tflops=20,vram=2g", "tflops=60,vram=4g", "gpu=2,tflops=30,vram=2g", "gpu=1"])


@pytest.mark.long
@settings(max_examples=150)
@given(
    st.lists(st.tuples(texts, st.integers(0, 3)), min_size=1, max_size=12),
    st.tuples(st.sampled_from(["tflops=70,vram=8g", "gpu=2,tflops=70,vram=8g", "gpu=1"]), st.integers(1, 4)),
    st.data(),
)
def test_a_request_that_comes_after_never_takes_kept_room(others, first, data):
    """Whoever is placed in between: when its victims are gone, the nominated request finds its room."""
    allocator = ready(a_node("m", a_card("m-0"), a_card("m-1")), a_node("n", a_card("n-0"), a_card("n-1")))
    for n, (text, priority) in enumerate(others):
        allocator.alloc(ask(text, f"old-{n}", priority=priority), NOW)
    request = ask(first[0], "first", priority=first[1])
    found = allocator.preempt(request, NOW)
    assume(isinstance(found, Preemption))
    for uid in found.uids:
        allocator.release(uid)
    allocator.nominate(found.nomination(request, NOW))
    leaving = list(found.uids)
    for n in range(data.draw(st.integers(1, 8))):
        asked = ask(data.draw(texts), f"new-{n}", priority=data.draw(st.integers(0, first[1] - 1)))
        if data.draw(st.booleans()):
            allocator.alloc(asked, NOW)
        else:
            node, first_card = data.draw(st.sampled_from("mn")), data.draw(st.integers(0, 1))
            cards = [f"{node}-{first_card}", f"{node}-{1 - first_card}"]
            allocator.assume(asked, cards[: asked.requirement.gpu_count], NOW)
        if leaving and data.draw(st.booleans()):
            allocator.dealloc(leaving.pop(), NOW)
    for uid in leaving:
        allocator.dealloc(uid, NOW)
    placed = allocator.alloc(request, NOW)
    assert isinstance(placed, Allocation)
