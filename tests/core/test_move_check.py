"""A plan of moves is checked again only where the books changed, with the answer of a check of all of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.lab import a_node

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import at_once
from ullage.core.evicting import move_check
from ullage.core.evicting.consolidation import consolidating
from ullage.core.evicting.move_check import rows_of, still_holds
from ullage.core.evicting.move_order import in_order
from ullage.core.evicting.moves import Consolidation, Move, MoveContext, MoveCost, MoveQuestion
from ullage.core.placing.decision import Choice
from ullage.core.placing.nomination import Nominations, Promised
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.request import ResourceRequirement

WIDE = Request("wide", ResourceRequirement.from_string("gpu=4"))
TEXTS = ("gpu=0.3", "gpu=0.5", "gpu=1", "gpu=1", "gpu=2")


def broken_up(rng: random.Random) -> FleetAllocator:
    """Books on which two fifths of the cards are held, here and there."""
    books = FleetAllocator(Fleet([a_node(f"n{k}", 32, gpus=4) for k in range(6)]), Rules("spread"))
    books.set_ready()
    held, number = 0, 0
    while held < 10_000:
        number += 1
        held += place(books, str(number), rng.choice(TEXTS))
    return books


def place(books: FleetAllocator, uid: str, text: str) -> int:
    outcome = books.alloc(Request(uid, ResourceRequirement.from_string(text)), 0.0)
    return books.fleet.resources(outcome.requirement).gpu_milli if isinstance(outcome, Allocation) else 0


def planned(seed: int, units: int = 2) -> tuple[FleetAllocator, Consolidation, MoveQuestion]:
    books = broken_up(random.Random(seed))
    question = books.move_question(WIDE, units, 1.0)
    found = at_once(consolidating(books.fleet, books.rules, question))
    assert isinstance(found, Consolidation)
    return books, found, question


def change(books: FleetAllocator, rng: random.Random) -> None:
    if rng.random() < 0.5:
        books.dealloc(rng.choice(sorted(books.fleet.ledger)), 0.0)
    else:
        place(books, f"late{rng.random()}", rng.choice(TEXTS))


def test_a_move_that_has_to_wait_for_a_later_one_does_not_hold_though_all_fit_in_the_end():
    books = Fleet([a_node("n", 64, gpus=2), a_node("o", 64, gpus=1), a_node("p", 64, gpus=1)])
    part = ResourceRequirement.from_string("gpu=0.4")
    charges = (Charge(400_000, 400_000),)
    for uid, node, card in (("a", "n", "GPU-n-0"), ("b", "o", "GPU-o-0")):
        books.charge(Allocation(uid, node, part, (card,), AllocationState.BOUND, charges, Claim(), 0.0, 0.0))
    moves = [
        Move(books.ledger[uid], Choice(node, (card,), charges=()))
        for uid, node, card in (("a", "o", "GPU-o-0"), ("b", "p", "GPU-p-0"))
    ]
    question = MoveQuestion(Request("wide", ResourceRequirement.of(gpu=2)), 1, 1.0)
    units = (Choice("n", ("GPU-n-0", "GPU-n-1"), charges=()),)
    found = Consolidation(units, tuple(moves), MoveCost(0, 2, 800), 0.0, least=True, stays={})
    for rows in (None, {1}):
        assert still_holds(books, Rules(), question, found, rows)
    late = (Charge(300_000, 300_000),)
    books.charge(Allocation("late", "o", part, ("GPU-o-0",), AllocationState.BOUND, late, Claim(), 0.0, 0.0))
    for rows in (None, {1}):
        assert not still_holds(books, Rules(), question, found, rows)


def test_of_two_that_change_places_the_smaller_leaves_first_and_waits():
    books = Fleet([a_node("n", 64, gpus=1), a_node("o", 64, gpus=1)])
    for uid, node, milli in (("small", "n", 600), ("large", "o", 700)):
        asked, amount = ResourceRequirement.from_string(f"gpu={milli / 1000}"), milli * 1000
        held = (Charge(amount, amount),)
        books.charge(Allocation(uid, node, asked, (f"GPU-{node}-0",), AllocationState.BOUND, held, Claim(), 0.0, 0.0))
    look = MoveContext.of(books, Rules(), MoveQuestion(WIDE, 1, 1.0))
    small = Move(books.ledger["small"], Choice("o", ("GPU-o-0",), charges=books.ledger["small"].charges))
    large = Move(books.ledger["large"], Choice("n", ("GPU-n-0",), charges=books.ledger["large"].charges))
    assert at_once(in_order(look, [large, small])) == (replace(small, gap=True), large)


def test_a_check_of_the_nodes_that_changed_has_the_answer_of_a_check_of_all():
    answers = []
    for seed in range(60):
        books, found, question = planned(seed)
        rng, clock = random.Random(-seed), books.fleet.clock
        for _ in range(rng.randint(0, 2)):
            change(books, rng)
        rows = books.fleet.touched_since(clock)
        whole = still_holds(books.fleet, books.rules, question, found)
        assert still_holds(books.fleet, books.rules, question, found, rows) is whole, seed
        answers.append((bool(found.moves), whole))
    assert {(True, True), (True, False)} <= set(answers)


def test_moves_of_nodes_that_did_not_change_are_not_looked_at(monkeypatch: pytest.MonkeyPatch):
    books, found, question = planned(1)
    looked: list[str] = []
    is_free, has_room = move_check.is_free, move_check._has_room

    def watched(look, move):
        looked.append(move.to.node)
        return is_free(look, move)

    def placed(look, request, place):
        looked.append(place.node)
        return has_room(look, request, place)

    monkeypatch.setattr(move_check, "is_free", watched)
    monkeypatch.setattr(move_check, "_has_room", placed)
    assert found.moves
    assert still_holds(books.fleet, books.rules, question, found, set())
    assert not looked
    node = found.moves[0].to.node
    assert still_holds(books.fleet, books.rules, question, found, {books.fleet.row_of[node]})
    assert set(looked) == {node}


def test_nodes_with_other_reservations_are_those_of_entries_that_came_and_went():
    fleet = Fleet([a_node(f"n{k}", gpus=1) for k in range(4)])
    stays, goes, comes = (Nomination(WIDE, f"n{k}", 0.0) for k in range(3))
    place = Allocation("s/0", "n3", WIDE.requirement, ("GPU-n3-0",))
    before, after = Nominations((stays, goes)), Nominations((stays, comes), (Promised((place,)),))
    assert rows_of(fleet, before.all(fleet), after.all(fleet)) == {1, 2, 3}
    assert rows_of(fleet, after.all(fleet), after.all(fleet)) == set()


@settings(max_examples=60)
@given(
    st.lists(st.integers(2, 6), min_size=2, max_size=8), st.permutations(range(4)), st.randoms(use_true_random=False)
)
def test_each_leaves_as_soon_as_its_next_place_is_free_or_the_smallest_waits_for_it(tenths, next_card, rng):
    """All who hold parts of a card go to the card that is its next one."""
    held, sizes = [10] * 4, dict[str, tuple[int, int, int]]()
    for number, size in enumerate(tenths):
        here = rng.choice([card for card in range(4) if held[card] >= size] or [-1])
        if here >= 0:
            held[here] -= size
            sizes[f"a{number}"] = here, next_card[here], size
    books, moves = Fleet([a_node(f"n{n}", 64, gpus=1) for n in range(4)]), list[Move]()
    for uid, (here, there, size) in sizes.items():
        asked, charges = ResourceRequirement.from_string(f"gpu=0.{size}"), (Charge(size * 100_000, size * 100_000),)
        card = (f"GPU-n{here}-0",)
        books.charge(Allocation(uid, f"n{here}", asked, card, AllocationState.BOUND, charges, Claim(), 0.0, 0.0))
        moves.append(Move(books.ledger[uid], Choice(f"n{there}", (f"GPU-n{there}-0",), charges=charges)))
    look = MoveContext.of(books, Rules(), MoveQuestion(WIDE, 1, 1.0))
    expected, pending, out = list[tuple[str, bool]](), list(sizes), list[str]()
    while pending:
        able = [uid for uid, (here, there, size) in sizes.items() if here == there or held[there] >= size]
        able = [uid for uid in able if uid in pending]
        one = able[0] if able else min(pending, key=lambda uid: (sizes[uid][2], uid))
        expected.append((one, not able))
        pending.remove(one)
        out.append(one)
        held[sizes[one][0]] += sizes[one][2]
        for back in [uid for uid in out if held[sizes[uid][1]] >= sizes[uid][2]]:
            held[sizes[back][1]] -= sizes[back][2]
            out.remove(back)
    event(f"{sum(gap for _, gap in expected)} wait")
    assert [(move.allocation.id, move.gap) for move in at_once(in_order(look, moves))] == expected
