"""How many units moves can make room for, by slow sums, and what is said of plans that are not the cheapest."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest import mock

import pytest
from tests.books import NOW, Books, a_card, a_node
from tests.core.test_consolidation import PART, plan, wanted

from ullage.core.books.slices import at_once
from ullage.core.evicting import consolidation
from ullage.core.evicting.move_check import still_holds
from ullage.core.evicting.move_search import MoveHolders, MoveSearch
from ullage.core.evicting.moves import (
    Consolidation,
    Move,
    MoveContext,
    MoveCost,
    MoveQuestion,
    NoConsolidation,
    why_stays,
)
from ullage.core.evicting.protection import Shield
from ullage.core.placing.decision import Choice
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim
from ullage.model.gpu import Gpu
from ullage.model.oversubscription import Oversubscription

LOW, HIGH = "tflops=30,vram=4g", "tflops=10,vram=9g"
ROOM_FOR = {LOW: "tflops=65,vram=11g", HIGH: "tflops=85,vram=6g"}
"""What leaves room on a card for one part of each size, and for none of the other."""


def some_books(rng: Random) -> Books:
    """Return nodes with parts of cards that may be moved, and some that may not."""
    speeds = rng.choice([(100_000,), (100_000,), (100_000, 60_000), (0,), (1,)])
    nodes = [
        a_node(f"n{n}", *(_card(f"n{n}-{k}", rng.choice(speeds)) for k in range(rng.randint(1, 3)))) for n in range(3)
    ]
    books, parts = Books(*nodes), TEXTS if min(speeds) > 1 else TEXTS[:2]
    for number, gpu in enumerate(gpu for node in nodes for gpu in node.gpus):
        text = rng.choice([*parts, "none", "none"])
        if text != "none":
            facts = {"executor": rng.random() < 0.2, "priority": rng.choice([0, 0, 2])}
            books.run(f"r{number}", gpu.uuid, of=text, **facts)
    return books


TEXTS = "", "vram=6g", "tflops=1,vram=16g", "tflops=50,vram=1g", "tflops=30,vram=6g"


def _card(uuid: str, gflops: int) -> Gpu:
    return replace(a_card(uuid), compute_gflops=gflops)


@pytest.mark.parametrize("seed", range(60))
def test_no_more_units_fit_than_nodes_have_cards_without_those_who_stay_and_all_cards_have_room(seed):
    rng = Random(seed)
    books, units, highest = some_books(rng), rng.randint(1, 6), rng.choice([0, 2])
    largest = max(len(node.gpus) for node in books.fleet.nodes)
    count = rng.randint(1, min(2, largest))
    rules = Rules(oversubscription=rng.choice([None, None, Oversubscription()]))
    fleet, asked = books.fleet, wanted(f"gpu={count}")
    movable = [each for each in fleet.ledger.values() if each.claim is not None]
    look = MoveContext.of(fleet, rules, MoveQuestion(asked, units, NOW))
    search = at_once(MoveSearch.over(look, at_once(MoveHolders.read(look, movable)), highest))
    placer, by_nodes = Placer(fleet, Policy()), 0
    goes = {each.id for each in movable if each.claim.priority <= highest and placer.room(each.requirement).any()}
    for node in fleet.nodes:
        able = [gpu for gpu in node.gpus if fleet.holders[fleet.card_of[gpu.uuid]].keys() <= goes]
        able = [gpu for gpu in able if gpu.compute]  # a card that says it has none takes nobody
        by_nodes += min(len(able) // count, units, largest // count)
    bounds = [by_nodes]
    if not rules.oversubscription and len({gpu.compute for gpu in fleet.cards}) == 1:
        free = [(fleet.compute_free[card], fleet.vram_free[card]) for card in range(len(fleet.cards))]
        sizes = fleet.cards[0].compute, fleet.cards[0].vram
        bounds += [sum(max(0, each[k]) for each in free) // sizes[k] // count for k in range(2) if sizes[k]]
    assert search.most() == min(bounds)


def test_a_card_with_next_to_nothing_on_it_and_a_full_one_are_no_room_for_a_unit():
    books = (
        Books(a_node("n"), a_node("o"))
        .run("moves", "n-0", of="tflops=0.001,vram=1")
        .run("stays", "o-0", of="", executor=True)
    )
    look = MoveContext.of(books.fleet, Rules(), MoveQuestion(wanted("gpu=1"), 1, NOW))
    holders = at_once(MoveHolders.read(look, [books.fleet.ledger["moves"]]))
    assert at_once(MoveSearch.over(look, holders, 0)).most() == 0


def test_a_plan_of_one_unit_after_the_other_does_not_say_that_it_costs_least():
    """The two small ones are cheapest to move, but only one of them finds a place; the first plan is the only try."""
    books = Books(*(a_node(f"n{n}", a_card(f"n{n}-0", 40, 10)) for n in range(3)), a_node("p"), a_node("q"))
    for number, text in enumerate((LOW, LOW, HIGH)):
        books.run(f"r{number}", f"n{number}-0", of=text)
    books.run("stays", "p-0", of=ROOM_FOR[LOW], executor=True).run("stays too", "q-0", of=ROOM_FOR[HIGH], executor=True)
    one_by_one, all_ways = plan(books, "gpu=1", 2, tries=1), plan(books, "gpu=1", 2, tries=1000)
    assert (one_by_one.least, all_ways.least) == (False, True)
    assert one_by_one.cost == all_ways.cost


def test_who_made_room_for_one_unit_is_not_moved_again_for_the_next():
    """Three small ones would be cheapest, but two of them find a place; so units are planned one by one."""
    books = Books(*(a_node(f"n{n}", a_card(f"n{n}-0", 40, 10)) for n in range(4)), *(a_node(name) for name in "pqr"))
    for number, text in enumerate((LOW, LOW, LOW, HIGH)):
        books.run(f"r{number}", f"n{number}-0", of=text)
    for name, text in (("p", LOW), ("q", LOW), ("r", HIGH)):
        books.run(f"stays on {name}", f"{name}-0", of=ROOM_FOR[text], executor=True)
    found = plan(books, "gpu=1", 3, tries=1)
    assert isinstance(found, Consolidation)
    assert (found.least, sorted(move.allocation.id for move in found.moves)) == (False, ["r0", "r1", "r3"])


def test_nobody_moves_away_from_the_only_card():
    refused = plan(Books(a_node("n")).run("a", "n-0", of=PART), "gpu=1")
    assert isinstance(refused, NoConsolidation)
    assert refused.rejections[0].had == 0


def test_a_plan_holds_though_one_of_its_units_fits_without_moves():
    books = Books(*(a_node(name, a_card(f"{name}-0"), a_card(f"{name}-1")) for name in "nop"))
    books.run("a", "n-0", of=PART).run("b", "o-0", of=PART)
    found, question = plan(books, "gpu=2", 2), MoveQuestion(wanted("gpu=2"), 2, NOW)
    assert isinstance(found, Consolidation)
    assert found.cost.number == 1
    assert still_holds(books.fleet, Rules(), question, found)
    books.fleet.release("a")
    assert not still_holds(books.fleet, Rules(), question, found)


def test_where_some_units_have_a_plan_nobody_looks_for_a_plan_of_fewer():
    books = Books(*(a_node(f"n{n}", a_card(f"n{n}-0", 40, 10)) for n in range(4)), a_node("p"), a_node("q"))
    for number in range(4):
        books.run(f"r{number}", f"n{number}-0", of=LOW)
    books.run("stays", "p-0", of=ROOM_FOR[LOW], executor=True).run("stays too", "q-0", of=ROOM_FOR[HIGH], executor=True)
    with mock.patch.object(consolidation, "find_plan", wraps=consolidation.find_plan) as looks:
        refused = plan(books, "gpu=1", 2)
    assert isinstance(refused, NoConsolidation)
    assert (refused.rejections[0].needed, refused.rejections[0].had) == (2, 1)
    assert looks.call_count == 1


@pytest.mark.parametrize("rows", [None, {1}])
def test_who_is_out_comes_back_when_somebody_leaves_for_a_node_that_did_not_change(rows):
    """`a` waits for the room that `b` gives on the node o when it goes to p, where nothing changed."""
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o"), a_node("p"))
    books.run("a", "n-0", of=PART).run("b", "o-0", of="tflops=70,vram=6g")
    ledger = books.fleet.ledger
    moves = [
        Move(ledger["a"], Choice("o", ("o-0",), charges=ledger["a"].charges), gap=True),
        Move(ledger["b"], Choice("p", ("p-0",), charges=ledger["b"].charges)),
    ]
    units = (Choice("n", ("n-0", "n-1"), charges=()),)
    question = MoveQuestion(wanted("gpu=2"), 1, NOW)
    found = Consolidation(units, tuple(moves), MoveCost(0, 2, 0), 0.0, least=True, stays={})
    assert still_holds(books.fleet, Rules(), question, found, rows)
    alone = Consolidation(units, tuple(moves[:1]), MoveCost(0, 1, 0), 0.0, least=True, stays={})
    assert not still_holds(books.fleet, Rules(), question, alone, rows)


def test_units_take_the_cards_that_were_freed_for_them_before_idle_ones():
    """The unit needs the cores of the one that moves; each of the three cards of its node would do then."""
    node = replace(a_node("o", *(a_card(f"o-{k}") for k in range(3))), cpu_milli=4000)
    books = Books(a_node("n"), node, a_node("p")).run("full", "n-0", of="").run("moves", "o-2", of=f"{PART},cpu=1")
    books.run("stays", "p-0", of=PART, executor=True)
    found = plan(books, "gpu=1,cpu=4")
    assert isinstance(found, Consolidation)
    assert [(move.allocation.id, move.to.gpus) for move in found.moves] == [("moves", ("p-0",))]
    assert [unit.gpus for unit in found.units] == [("o-2",)]


@pytest.mark.parametrize("rows", [set(), {0}, {1}, {0, 1}, {2}])
def test_a_plan_holds_whichever_of_its_nodes_are_looked_at(rows):
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o", a_card("o-0"), a_card("o-1")), a_node("p"))
    books.run("a", "n-0", of=PART).run("b", "o-0", of=PART).run("c", "p-0", of="")
    found, question = plan(books), MoveQuestion(wanted(), 1, NOW)
    assert isinstance(found, Consolidation)
    assert [(move.allocation.node, move.to.node) for move in found.moves] == [("n", "o")]
    assert still_holds(books.fleet, Rules(), question, found, rows)
    books.run("late", "o-0", of="tflops=30,vram=2g")
    assert still_holds(books.fleet, Rules(), question, found, rows) is (1 not in rows)


@pytest.mark.parametrize(("cores", "expected"), [(10, True), (9, False)])
def test_units_and_all_who_move_must_fit_together(cores, expected):
    """Both go to the third card of their node. Each fits there with the unit, but for want of cores not both."""
    books = Books(replace(a_node("n", a_card("n-0"), a_card("n-1"), a_card("n-2")), cpu_milli=cores * 1000))
    for uid, card in (("a", "n-0"), ("b", "n-1")):
        books.run(uid, card, of="tflops=30,vram=4g,cpu=3")
    books.run("stays", "n-2", of="tflops=30,vram=4g", executor=True)
    held = [books.fleet.ledger[uid] for uid in "ab"]
    moves = tuple(Move(each, Choice("n", ("n-2",), charges=each.charges)) for each in held)
    units = (Choice("n", ("n-0", "n-1"), charges=()),)
    found = Consolidation(units, moves, MoveCost(0, 2, 0), 0.0, least=True, stays={})
    assert still_holds(books.fleet, Rules(), MoveQuestion(wanted("gpu=2,cpu=4"), 1, NOW), found) is expected


def test_the_age_of_a_plan_is_that_of_the_longest_running_who_moves():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"), a_card("n-2")), a_node("o"))
    for uid, card, since in (("young", "n-0", 900.0), ("old", "n-1", 300.0), ("middle", "n-2", 600.0)):
        books.run(uid, card, of="tflops=30,vram=4g", since=since)
    found = plan(books, "gpu=3")
    assert isinstance(found, Consolidation)
    assert (found.cost.number, found.age_s) == (3, NOW - 300.0)


@pytest.mark.parametrize("gone", ["unit", "mover", "node"])
def test_a_plan_whose_places_are_gone_does_not_hold(gone):
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o"), a_node("p"))
    books.run("a", "n-0", of=PART).run("b", "o-0", of=PART).run("c", "p-0", of="")
    held = books.fleet.ledger["a"]
    unit = Choice("n", ("n-0", "n-7" if gone == "unit" else "n-1"), charges=())
    to = Choice("x" if gone == "node" else "o", ("o-7" if gone == "mover" else "o-0",), charges=held.charges)
    found = Consolidation((unit,), (Move(held, to),), MoveCost(0, 1, 0), 0.0, least=True, stays={})
    assert not still_holds(books.fleet, Rules(), MoveQuestion(wanted("gpu=2"), 1, NOW), found)


@pytest.mark.parametrize(
    ("node", "cards", "stays"),
    [("n", ("n-0",), False), ("m", ("n-0",), True), ("x", ("x-0",), True), ("n", ("n-0", "m-0"), True)],
)
def test_who_holds_cards_that_are_not_on_its_node_stays(node, cards, stays):
    fleet = Books(a_node("m"), a_node("n")).fleet
    held = Allocation("a", node, wanted(f"gpu={len(cards)}").requirement, cards, AllocationState.BOUND, claim=Claim())
    question = MoveQuestion(wanted("gpu=1"), 1, NOW)
    assert why_stays(fleet, question, held) is (Shield.SCATTERED if stays else None)
