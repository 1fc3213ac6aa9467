"""A plan of moves is checked again only where the books changed, with the answer of a check of all of it."""

from __future__ import annotations

import random

import pytest
from tests.lab import a_node

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import at_once
from ullage.core.evicting import move_check
from ullage.core.evicting.consolidation import consolidating
from ullage.core.evicting.move_check import rows_of, still_holds
from ullage.core.evicting.moves import Consolidation, MoveQuestion
from ullage.core.placing.nomination import Nominations, Promised
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
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
