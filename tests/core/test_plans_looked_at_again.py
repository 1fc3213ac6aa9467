"""A plan that makes room by moving, looked at again after the books changed: what it needs must still be there."""

from dataclasses import replace

import pytest
from tests.books import NOW, Books, a_card, a_node, content

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.consolidation import consolidate
from ullage.core.evicting.move_check import still_holds
from ullage.core.evicting.moves import Consolidation, Move, MoveCost, MoveQuestion
from ullage.core.evicting.victims import Budgets
from ullage.core.placing.decision import Choice
from ullage.core.placing.nomination import Nominations
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

PART = "tflops=40,vram=6g"
PAIR = Request("wanted", ResourceRequirement.of(gpu=2), Claim(namespace="team"))


def two_nodes():
    """Two nodes of two cards, with a part on each: `a` on the node n, `b` on the node o."""
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o", a_card("o-0"), a_card("o-1")))
    return books.run("a", "n-0", of=PART).run("b", "o-0", of=PART)


def planned(books):
    """The plan for a pair of cards: `a` goes to `b`, and the node n is free."""
    found = consolidate(books.fleet, Rules(), PAIR, 1, NOW)
    assert isinstance(found, Consolidation)
    assert [(move.allocation.id, move.to.gpus) for move in found.moves] == [("a", ("o-0",))]
    assert [unit.gpus for unit in found.units] == [("n-0", "n-1")]
    return found


def holds(books, found, rules=None, wanted=PAIR, **facts):
    before = content(books.fleet)
    answer = still_holds(books.fleet, rules or Rules(), MoveQuestion(wanted, len(found.units), NOW, **facts), found)
    assert content(books.fleet) == before
    return answer


def test_a_plan_holds_in_the_books_in_which_it_was_made():
    books = two_nodes()
    assert holds(books, planned(books))


def test_a_plan_without_moves_holds_as_long_as_the_units_have_room():
    books = two_nodes()
    books.fleet.release("a")
    found = consolidate(books.fleet, Rules(), PAIR, 1, NOW)
    assert isinstance(found, Consolidation)
    assert not found.moves
    assert holds(books, found)
    assert not holds(books.run("late", "n-1", of=PART), found)


@pytest.mark.parametrize(("late", "expected"), [("tflops=20,vram=1g", True), ("tflops=21,vram=1g", False)])
def test_the_next_place_of_a_mover_must_have_room_to_the_unit(late, expected):
    books = two_nodes()
    found = planned(books)
    assert holds(books.run("late", "o-0", of=late), found) is expected


def test_the_place_of_a_unit_must_be_free_once_all_have_moved():
    books = two_nodes()
    found = planned(books)
    assert not holds(books.run("late", "n-1", of="tflops=1"), found)


def test_nobody_moves_for_what_fits_without_moves_now():
    books = two_nodes()
    found = planned(books)
    books.fleet.release("b")
    assert not holds(books, found)


def test_who_moves_is_still_there_as_it_was():
    books = two_nodes()
    found = planned(books)
    held = books.fleet.release("a")
    assert not holds(books, found)
    books.fleet.charge(replace(held, claim=replace(held.claim, priority=1)))
    assert not holds(books, found)


def test_who_has_a_higher_priority_than_may_move_stays():
    books = two_nodes()
    found = planned(books)
    assert holds(books, found, up_to=0)
    assert not holds(books, found, up_to=-1)


def test_as_many_of_a_workload_move_as_its_budget_allows_now():
    books = Books(*(a_node(name, a_card(f"{name}-0"), a_card(f"{name}-1")) for name in "no"))
    books.run("a", "n-0", of=PART, workload="web").run("b", "o-0", of=PART, workload="web")
    found = planned(books)
    for left, expected in ((2, True), (1, True), (0, False)):
        assert holds(books, found, budgets=Budgets({("team", "web"): left})) is expected
    assert holds(books, found, budgets=Budgets({("team", "job"): 0}))


@pytest.mark.parametrize("gone", ["n", "o"])
def test_the_nodes_of_a_plan_are_still_there(gone):
    books = two_nodes()
    found = planned(books)
    left = [node for node in books.fleet.nodes if node.name != gone]
    books.fleet = Fleet([*left, a_node("p")], [each for each in books.fleet.ledger.values() if each.node != gone])
    assert not holds(books, found)


@pytest.mark.parametrize("gone", ["n-1", "o-0"])
def test_the_cards_of_a_plan_are_still_there(gone):
    books = two_nodes()
    found = planned(books)
    if gone == "o-0":
        books.fleet.release("b")
        books.run("b", "o-1", of=PART)
    nodes = [replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid != gone)) for node in books.fleet.nodes]
    books.fleet = Fleet(nodes, books.fleet.ledger.values())
    assert not holds(books, found)


def test_who_moves_is_charged_at_its_next_place_as_the_plan_says():
    """A fraction of a card that became larger is another amount."""
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o", a_card("o-0"), a_card("o-1")))
    books.run("a", "n-0", of="percent=40").run("b", "o-0", of=PART)
    found = planned(books)
    assert holds(books, found)
    first, second = books.fleet.nodes
    larger = replace(second, gpus=(a_card("o-0", 200, 16), second.gpus[1]))
    books.fleet = Fleet([first, larger], books.fleet.ledger.values())
    assert not holds(books, found)


@pytest.mark.parametrize("card", ["n-1", "o-0"])
def test_room_that_is_reserved_since_is_neither_for_units_nor_for_movers(card):
    books = two_nodes()
    found = planned(books)
    asked = Request("reserved", ResourceRequirement.from_string("tflops=30"), Claim(priority=5))
    kept = Nominations((Nomination(asked, card[0], 0.0, (card,)),))
    assert not holds(books, found, nominations=kept)


@pytest.mark.parametrize(("gpus", "expected"), [(280_000, True), (279_999, False)])
def test_the_units_must_fit_the_quota_once_they_are_there(gpus, expected):
    """The namespace has 80 TFLOPS in parts, which stay; two whole cards are 200 more."""
    books = two_nodes()
    found = planned(books)
    rules = Rules(quotas=Quotas({"team": Quota(total_requests=Caps(gpus))}))
    assert holds(books, found, rules) is expected


# --- the order of the moves ---

CARD = Request("wanted", ResourceRequirement.of(gpu=1), Claim(namespace="team"))


def in_a_row():
    """Three cards: `a` can go to the second when `b` has left it for the third, of which `c` has a part."""
    books = Books(*(a_node(name) for name in "nop"))
    return books.run("a", "n-0", of="tflops=60").run("b", "o-0", of="tflops=60").run("c", "p-0", of="tflops=40")


def moved(books, uid, to, *, gap=False):
    held = books.fleet.ledger[uid]
    return Move(held, Choice(to[0], (to,), charges=held.charges), gap)


def plan_of(*moves):
    return Consolidation((Choice("n", ("n-0",), ()),), moves, MoveCost(0, len(moves), 0), 0.0, least=True, stays={})


def test_each_mover_finds_room_when_its_turn_comes():
    books = in_a_row()
    first, second = moved(books, "b", "p-0"), moved(books, "a", "o-0")
    assert holds(books, plan_of(first, second), wanted=CARD)
    assert not holds(books, plan_of(second, first), wanted=CARD)


def test_who_leaves_before_there_is_room_needs_it_only_at_the_end():
    books = in_a_row()
    early, other = moved(books, "a", "o-0", gap=True), moved(books, "b", "p-0")
    assert holds(books, plan_of(early, other), wanted=CARD)
    assert not holds(books, plan_of(early), wanted=CARD)


@pytest.mark.parametrize("gap", [False, True])
def test_who_has_moved_has_its_next_place_while_others_still_have_to_go(gap):
    """`x` leaves the second card, on which there is room for `d` besides `a` only then."""
    books = Books(*(a_node(name) for name in "nopqr"))
    for uid, card, tflops in (
        ("a", "n", 60),
        ("b", "o", 60),
        ("x", "o", 30),
        ("c", "p", 40),
        ("y", "q", 1),
        ("d", "r", 20),
    ):
        books.run(uid, f"{card}-0", of=f"tflops={tflops}")
    first, other = moved(books, "a", "o-0", gap=gap), moved(books, "b", "p-0")
    late, gone = moved(books, "d", "o-0"), moved(books, "x", "q-0")
    begin = (first, other) if gap else (other, first)
    assert holds(books, plan_of(*begin, gone, late), wanted=CARD)
    assert not holds(books, plan_of(*begin, late, gone), wanted=CARD)
