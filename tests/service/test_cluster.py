"""A cluster whose scheduler picks nodes: nobody is offered what another one will probably have."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.books import a_card, a_node, ask, refusals_of
from tests.clock import Clock

from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.error import Conflict, NotFound, Unavailable
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.service.cluster import Cluster
from ullage.service.expected_places import EXPECTED_S

pytestmark = pytest.mark.timeout(900)


def cluster(*nodes: Node, clock: Clock | None = None) -> Cluster:
    found = Cluster(Rules(), clock or Clock())
    found.set_nodes(nodes)
    found.recover(())
    return found


def whole(uid: str, **claim: object):
    return ask("gpu=1", uid=uid, **claim)


def test_two_that_are_asked_about_before_either_is_bound_get_different_cards():
    books = cluster(a_node("a"), a_node("b"))
    first = books.offers(whole("1"), ["a", "b"])
    best = first.best
    second = books.offers(whole("2"), ["a", "b"])
    assert second.names == [name for name in ("a", "b") if name != best]
    assert refusals_of(second)[best].counts == {Code.NOMINATED: 1}
    for uid, offered in (("1", first), ("2", second)):
        assert isinstance(books.reserve(whole(uid), offered.best), Allocation)
        books.confirm(uid)
        assert books.held(uid).state is AllocationState.BOUND


def test_a_place_is_reserved_for_a_short_time_and_moves_to_the_node_of_the_scheduler():
    clock = Clock()
    books = cluster(a_node("a"), clock=clock)
    books.offers(whole("1"), ["a"])
    assert not books.offers(whole("2"), ["a"]).names
    clock.now += EXPECTED_S
    assert books.offers(whole("2"), ["a"]).names
    assert isinstance(books.reserve(whole("2"), "a"), Allocation)
    assert isinstance(books.reserve(whole("1"), "a"), Refusal)


def test_offers_without_expectation_reserve_nothing():
    books = cluster(a_node("a"))
    version = books.allocator.version
    assert books.offers(whole("1"), ["a"], expected=False).names
    assert books.allocator.version == version
    assert books.offers(whole("2"), ["a"]).names


def test_a_node_without_cards_or_one_that_is_not_known_is_refused_for_good():
    books = cluster(a_node("a"), replace(a_node("bare"), gpus=()))
    refusals = refusals_of(books.offers(whole("1"), ["bare", "new", "a"]))
    assert [*refusals] == ["bare", "new"]
    assert not any(refusal.helps for refusal in refusals.values())


def test_a_repeated_bind_has_the_same_cards_and_another_node_is_a_conflict():
    books = cluster(a_node("a", a_card("a-0"), a_card("a-1")), a_node("b"))
    first = books.reserve(whole("1"), "a")
    assert books.reserve(whole("1"), "a") == first
    with pytest.raises(Conflict):
        books.reserve(whole("1"), "b")
    books.undo("1")
    assert isinstance(books.reserve(whole("1"), "b"), Allocation)
    with pytest.raises(NotFound):
        books.reserve(whole("2"), "nowhere")


def test_a_placed_request_is_offered_only_its_own_node():
    books = cluster(a_node("a"), a_node("b"))
    books.reserve(whole("1"), "b")
    found = books.offers(whole("1"), ["a", "b"])
    assert found.names == ["b"]
    assert refusals_of(found)["a"].counts == {Code.RUNNING: 1}


def test_nothing_is_decided_before_the_api_has_reported_allocations():
    books = Cluster(Rules(), Clock())
    books.set_nodes([a_node("a")])
    with pytest.raises(Unavailable):
        books.offers(whole("1"), ["a"])


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_the_books_are_those_of_what_is_held(seed: int):
    draw, clock = random.Random(seed), Clock()
    nodes = [a_node(f"n{n}", *(a_card(f"n{n}-{k}") for k in range(2))) for n in range(4)]
    books, names = cluster(*nodes, clock=clock), [node.name for node in nodes]
    held: dict[str, Allocation] = {}
    for step in range(200):
        clock.now += draw.random() * 4
        request = ask(draw.choice(("gpu=1", "gpu=2", "tflops=30,vram=4g")), uid=f"r{step}")
        offered = books.offers(request, draw.sample(names, 3))
        node = draw.choice(offered.names) if offered.names and draw.random() < 0.8 else None
        if node is not None:
            found = books.reserve(request, node)
            assert isinstance(found, Allocation), "it was offered just now"
            if draw.random() < 0.8:
                books.confirm(request.uid)
                held[request.uid] = books.held(request.uid)
            else:
                books.undo(request.uid)
        if held and draw.random() < 0.4:
            uid = draw.choice(sorted(held))
            books.release(uid)
            books.free(uid)
            del held[uid]
        if held and draw.random() < 0.2:
            books.adopt(held[draw.choice(sorted(held))])
        fleet, again = books.allocator.fleet, Fleet(nodes, held.values())
        assert fleet.ledger == again.ledger
        assert (fleet.card_rows[:, :4] == again.card_rows[:, :4]).all()
    assert len(held) > 3
