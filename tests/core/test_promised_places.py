"""What others find who come after a place was promised: nothing is charged twice, and nothing is given away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import GIB, NOW, Books, a_card, a_node, ask, capped, frozen, placed_with

from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.victims import EvictionContext
from ullage.core.placing.candidates import refusals_on
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, fit_together
from ullage.core.placing.nomination import Nominations, Promised
from ullage.core.placing.offers import offers
from ullage.core.placing.reserving import reserving, reserving_requests
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import held_place, reserved_place
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.victim import Victim

LEAVES = Victim("low", "team", "", 0, (), Rejection(Code.NO_VICTIMS, Cure.CAPACITY))


def owed(text: str, *gpus: str, charges: tuple[Charge, ...] = ()) -> Nominations:
    entry = Nomination(ask(text, "first", priority=5), "n", gpus=gpus, charges=charges, victims=(LEAVES,), owed=True)
    return Nominations((entry,))


def free_beside(books: Books, nominations: Nominations) -> dict[str, tuple[int, int]]:
    """Compute and vram that are left of each card."""
    fleet = books.fleet
    with reserving(fleet, nominations.before(fleet, ask())):
        return {
            card.uuid: (int(fleet.compute_free[at]), int(fleet.vram_free[at])) for at, card in enumerate(fleet.cards)
        }


def test_what_a_victim_holds_of_a_card_counts_once():
    books = Books(a_node("n", a_card("n-0"))).run("low", "n-0", of="tflops=50,vram=4g", state=AllocationState.RELEASING)
    had = free_beside(books, Nominations())["n-0"]
    smaller, larger = Charge(30_000, 2 * GIB), Charge(70_000, 2 * GIB)
    assert free_beside(books, owed("tflops=30,vram=2g", "n-0", charges=(smaller,)))["n-0"] == had
    assert free_beside(books, owed("tflops=70,vram=2g", "n-0", charges=(larger,)))["n-0"] == (had[0] - 20_000, had[1])
    books.fleet.release("low")
    assert free_beside(books, owed("tflops=70,vram=2g", "n-0", charges=(larger,)))["n-0"] == (30_000, had[1] + 2 * GIB)


def test_a_place_that_its_victim_holds_in_part_is_no_user_more_of_a_card():
    books = Books(a_node("n", a_card("n-0", max_users=2)))
    books.run("low", "n-0", of="tflops=20,vram=8g", state=AllocationState.RELEASING, namespace="other")
    fleet, place = books.fleet, Charge(30_000, 4 * GIB)
    nominations, before = owed("tflops=30,vram=4g", "n-0", charges=(place,)), frozen(books.fleet)
    assert free_beside(books, nominations)["n-0"] == (70_000, 8 * GIB)
    assert isinstance(placed_with(fleet, Rules(), ask("tflops=70,vram=8g"), nominations), Choice)
    assert isinstance(placed_with(fleet, Rules(), ask("tflops=71,vram=8g"), nominations), Refusal)
    with reserving(fleet, nominations.entries):
        assert fleet.card_users.tolist() == [1]
        assert fleet.usage["other"] == fleet.usage_of(before[-2]["low"])
    assert frozen(fleet) == before
    apart = replace(place, isolation=Isolation.HARD)
    with reserving(fleet, owed("tflops=30,vram=4g,isolation=hard", "n-0", charges=(apart,)).entries):
        assert fleet.card_users.tolist() == [2]


def test_who_leaves_makes_room_for_one_user_and_gives_what_it_holds_once():
    books = Books(a_node("n", a_card("n-0", max_users=4)))
    for uid in ("e1", "e2"):
        books.run(uid, "n-0", of="tflops=10,vram=1g", executor=True)
    part = ResourceRequirement.from_string("tflops=15,vram=1g")
    places = [Allocation(f"promised/{n}", "n", part, ("n-0",), charges=(Charge(15_000, GIB),)) for n in range(3)]
    fleet, before = books.fleet, frozen(books.fleet)
    for count, users, free in ((1, 2, 80_000), (2, 2, 70_000), (3, 3, 55_000)):
        with reserving(fleet, [Promised(tuple(places[:count]), ("e1", "e2"))]):
            assert (fleet.card_users.item(0), fleet.compute_free.item(0)) == (users, free)
    assert frozen(fleet) == before


def test_what_several_victims_hold_is_counted_off_several_places_once():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    place = ResourceRequirement.from_string("cpu=2,gpu=1")
    fleet = books.fleet
    had = int(fleet.cpu_free[0])
    fleet.charge(Allocation("e1", "n", ResourceRequirement.from_string("cpu=3,gpu=1"), ("n-0",)))
    places = tuple(Allocation(f"promised/{card}", "n", place, (card,)) for card in ("n-0", "n-1"))
    before = frozen(fleet)
    with reserving(fleet, [Promised(places, ("e1",))]):
        assert int(fleet.cpu_free[0]) == had - 4000
        assert set(fleet.holders[fleet.card_of["n-1"]]) == {"promised/n-1"}
        assert set(fleet.holders[fleet.card_of["n-0"]]) == {"e1"}
    assert frozen(fleet) == before


def test_who_leaves_for_several_leaves_for_the_first_of_them():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    fleet, asked = books.fleet, ResourceRequirement.from_string("cpu=2,gpu=1")
    had = fleet.cpu_free.item(0)
    fleet.charge(Allocation("e1", "n", ResourceRequirement.from_string("cpu=3,gpu=1"), ("n-0",)))
    each = [Promised((Allocation(f"promised/{card}", "n", asked, (card,)),), ("e1",)) for card in ("n-0", "n-1")]
    with reserving(fleet, each):
        assert fleet.cpu_free.item(0) == had - 5000


@pytest.mark.parametrize(("hold", "is_owed"), [(False, False), (True, False), (False, True), (True, True)])
def test_who_leaves_the_whole_cards_of_a_place_leaves_for_it_if_it_is_held_and_owed(hold, is_owed):
    books = Books(a_node("n", a_card("n-0")))
    books.run("low", "n-0", of="tflops=50,cpu=4", state=AllocationState.RELEASING)
    entry = Nomination(ask("gpu=1,cpu=4", "first", priority=5), "n", gpus=("n-0",), hold=hold, owed=is_owed)
    had = books.fleet.cpu_free.item(0)
    with reserving(books.fleet, [entry]):
        assert books.fleet.cpu_free.item(0) == had - (0 if hold and is_owed else 4000)


def test_a_place_is_that_of_the_request_and_held_only_if_it_says_so():
    books, request = Books(a_node("n", a_card("n-0"), a_card("n-1"))), ask("gpu=1", "first", priority=5)
    for hold in (True, False):
        entries = Nominations((Nomination(request, "n", gpus=("n-1",), hold=hold),))
        found = reserved_place(books.fleet, Rules(), request, entries)
        assert found is not None
        assert found.gpus == ("n-1",)
        assert (held_place(books.fleet, Rules(), request, entries) is not None) is hold
        other = ask("gpu=1", "other", priority=5)
        assert reserved_place(books.fleet, Rules(), other, entries) is None
        assert held_place(books.fleet, Rules(), other, entries) is None
    assert held_place(books.fleet, Rules(), request, Nominations()) is None
    books.run("x", "n-1", of="tflops=10")
    assert reserved_place(books.fleet, Rules(), request, entries) is None


def test_a_place_without_cards_is_where_the_least_is_left_after_it_as_a_fraction_of_the_card():
    books = Books(a_node("n", a_card("n-0", 100, 10), a_card("n-1", 100, 40)))
    books.run("x", "n-0", of="tflops=10,vram=2g", priority=20).run("y", "n-1", of="tflops=10,vram=20g", priority=20)
    assert free_beside(books, owed("tflops=10,vram=6g")) == {"n-0": (80_000, 2 * GIB), "n-1": (90_000, 20 * GIB)}
    assert free_beside(books, owed("tflops=10,vram=1g")) == {"n-0": (90_000, 8 * GIB), "n-1": (80_000, 19 * GIB)}
    books = Books(a_node("n", a_card("n-0", 200), a_card("n-1", 50))).run("y", "n-0", of="tflops=110", priority=20)
    assert free_beside(books, owed("tflops=10,vram=1g"))["n-0"] == (80_000, 15 * GIB)
    books = Books(a_node("n", a_card("n-0", 400), a_card("n-1", 40)))
    books.run("y", "n-0", of="tflops=180", priority=20).run("z", "n-1", of="tflops=15", priority=20)
    assert free_beside(books, owed("tflops=20,vram=1g"))["n-1"] == (5_000, 15 * GIB)


def test_a_card_that_is_promised_whole_is_nobodys_part_while_a_part_of_it_is_left():
    books = Books(a_node("n", a_card("n-0"))).run("low", "n-0", of="tflops=50", state=AllocationState.RELEASING)
    refused = placed_with(books.fleet, Rules(), ask("tflops=10"), owed("gpu=1", "n-0"))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.NOMINATED


def test_places_on_cards_that_are_gone_keep_nobody_out():
    books = Books(a_node("n", a_card("n-0")))
    gone = Allocation("promised/s/0", "n", ResourceRequirement.from_string("gpu=1"), ("gone",))
    nominations = Nominations(sessions=(Promised((gone,)),))
    assert isinstance(placed_with(books.fleet, Rules(), ask("gpu=1"), nominations), Choice)
    there = replace(gone, gpus=("n-0",))
    nominations = Nominations(sessions=(Promised((there,)),))
    assert isinstance(placed_with(books.fleet, Rules(), ask("gpu=1", priority=100), nominations), Refusal)


def in_a_quota() -> tuple[Books, Nominations]:
    """A winner whose room is on the first card, and whose namespace has nothing yet."""
    books = Books(a_node("n", *(a_card(f"n-{number}") for number in range(4))))
    return books, owed("tflops=50,vram=1g", "n-0", charges=(Charge(50_000, GIB),))


def test_members_of_a_gang_leave_a_winner_its_part_of_the_quota():
    books, nominations = in_a_quota()
    members = [ask("gpu=1", f"m{number}") for number in range(2)]
    assert isinstance(fit_together(books.fleet, capped(workers=2), members, NOW, nominations), Misfit)
    assert isinstance(fit_together(books.fleet, capped(workers=3), members, NOW, nominations), dict)


def test_nobody_goes_for_a_gang_that_would_use_up_the_quota_of_a_winner():
    books, nominations = in_a_quota()
    for number in (1, 2, 3):
        books.run(f"low-{number}", f"n-{number}", of="", namespace="other")
    members = [ask("gpu=1", f"m{number}") for number in range(2)]
    assert isinstance(
        preempt_together(EvictionContext(books.fleet, capped(workers=2), NOW, nominations=nominations), members), Misfit
    )
    assert isinstance(
        preempt_together(EvictionContext(books.fleet, capped(workers=3), NOW, nominations=nominations), members), dict
    )


def test_no_node_is_offered_to_who_would_use_up_the_quota_of_a_winner():
    books, nominations = in_a_quota()
    assert offers(books.fleet, capped(workers=1), ask("gpu=1"), nominations=nominations).refused[0] >= 0
    assert offers(books.fleet, capped(workers=2), ask("gpu=1"), nominations=nominations).refused[0] == -1


def test_what_victims_of_the_namespace_give_back_is_not_in_its_quota_twice():
    """Of each amount there is the larger: what the victim holds yet, or what comes in its place."""
    books = Books(a_node("n")).run("low", "n-0", of="tflops=50,vram=4g", state=AllocationState.RELEASING)
    before = books.fleet.usage["team"]
    with reserving(books.fleet, owed("tflops=70,vram=2g", "n-0", charges=(Charge(70_000, 2 * GIB),)).entries):
        used = books.fleet.usage["team"]
    assert (used.compute_request, used.vram_request, used.workers) == (70_000, 4 * GIB, 1)
    assert books.fleet.usage["team"] == before


@pytest.mark.parametrize(("cap", "free"), [(-1, 8), (20, 8), (5, 3), (3, 1), (2, 0), (1, 0), (0, 0)])
def test_sessions_leave_a_winner_its_worker_below_the_cap(cap, free):
    """Its node takes 10 workers. One is there, one is the winner."""
    books = Books(a_node("n", max_executors=10), a_node("o", max_executors=10)).run("v", "n-0", of="tflops=1")
    with reserving_requests(books.fleet, owed("tflops=1", "n-0", charges=(Charge(1_000, 0),)), cap):
        assert books.fleet.slots_free.tolist() == [free, 10]
    assert books.fleet.slots_free.tolist() == [9, 10]


def test_what_speaks_against_a_card_without_reservations_stays_the_reason_with_them():
    books = Books(a_node("n")).run("v", "n-0", of="tflops=50,vram=1g")
    ahead = owed("tflops=20,vram=1g", "n-0", charges=(Charge(20_000, GIB),)).entries
    for tflops, codes in ((60, [Code.GPU_COMPUTE]), (40, [Code.NOMINATED]), (30, [])):
        against = refusals_on(books.fleet, Rules(), ask(f"tflops={tflops},vram=1g"), [0], ahead)
        assert [each.code for each in against] == codes


@pytest.mark.parametrize(
    ("text", "node", "gpus", "found"),
    [
        pytest.param("gpu=1", "n", ("n-0",), True, id="it is free"),
        pytest.param("gpu=2", "n", ("n-0",), False, id="fewer cards than it asks for now"),
        pytest.param("gpu=1", "n", ("o-0",), False, id="a card that is on another node since"),
        pytest.param("gpu=1", "n", ("p-0",), False, id="a card that is gone"),
        pytest.param("gpu=1", "n", ("n-1",), False, id="somebody has it"),
    ],
)
def test_a_request_gets_the_cards_that_are_reserved_for_it_if_they_are_as_they_were(text, node, gpus, found):
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o")).run("v", "n-1", of="tflops=1")
    request = ask(text, "first")
    chosen = reserved_place(books.fleet, Rules(), request, Nominations((Nomination(request, node, gpus=gpus),)))
    assert (chosen is not None and (chosen.node, chosen.gpus) == (node, gpus)) is found


@pytest.mark.parametrize(
    ("text", "charges", "cpus"), [("cpu=3,gpu=1", (), 61), ("cpu=3,gpu=1,tflops=50", (Charge(50_000, 0),), 58)]
)
def test_a_mover_has_the_cpus_of_who_leaves_its_whole_card_and_waits_for_nobody_on_a_part(text, charges, cpus):
    """Three of 64 CPUs are of the allocation that leaves the card."""
    books = Books(a_node("n")).run("low", "n-0", of="cpu=3,tflops=50,vram=4g", state=AllocationState.RELEASING)
    entry = Nomination(ask(text, "moves"), "n", gpus=("n-0",), charges=charges, hold=True, owed=True)
    with reserving(books.fleet, (entry,)):
        assert books.fleet.cpu_free.tolist() == [cpus * 1000]
