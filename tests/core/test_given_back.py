"""How a request gives back what it holds: released, gone, swept up; and what its cards remember of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.books import GIB, Books, a_card, a_node, ask

from ullage.core.allocator import FleetAllocator
from ullage.core.books.usage import CardHolding
from ullage.core.holdings import Freed
from ullage.core.kernel import columns
from ullage.core.kernel.charge import part_of
from ullage.model.allocation import Allocation
from ullage.model.nomination import Nomination
from ullage.model.part import IsolationPolicy
from ullage.model.request import ResourceRequirement


def allocating(books: Books) -> FleetAllocator:
    allocator = FleetAllocator(books.fleet)
    allocator.set_ready()
    return allocator


def test_of_several_times_by_which_a_request_leaves_the_earliest_counts():
    allocator = allocating(Books(a_node("n")).run("a", "n-0"))
    said = [
        (100.0, 10.0, (100.0, 10.0)),
        (50.0, 20.0, (50.0, 20.0)),
        (50.0, 25.0, (50.0, 20.0)),
        (80.0, 30.0, (50.0, 20.0)),
    ]
    for by, now, expected in said:
        allocator.release("a", by, now)
        held = allocator.fleet.ledger["a"]
        assert (held.release_by, held.released_at) == expected
    allocator.release("a")
    assert allocator.fleet.ledger["a"].release_by == 50.0


def test_who_only_waited_is_neither_unknown_nor_gone_already():
    allocator = allocating(Books(a_node("n")).run("a", "n-0"))
    allocator.nominate(Nomination(ask(uid="waits"), "n"))
    assert allocator.dealloc("waits", 1.0) == Freed("waits")
    assert allocator.dealloc("waits", 1.0) == Freed("waits", unknown=True)
    assert allocator.dealloc("a", 1.0).gpus == ("n-0",)
    assert allocator.dealloc("a", 1.0) == Freed("a", already_gone=True)


def test_an_assumption_is_kept_for_its_whole_time():
    allocator = allocating(Books(a_node("n")))
    assert isinstance(allocator.assume(ask("gpu=1", uid="a"), ["n-0"], 100.0), Allocation)
    for now, swept in ((160.0, ()), (160.1, ("a",))):
        assert allocator.sweep(now, lambda _held: True, lambda _uid: False, ttl_s=60.0) == swept


def test_who_has_a_card_that_changed_is_entered_and_returned_once_with_its_card():
    books = Books(a_node("n")).run("a", "n-0", of="tflops=10,isolation=soft")
    books.run("e", "n-0", of="tflops=10,isolation=hard", executor=True)
    allocator, dynamic = allocating(books), replace(a_card("n-0"), isolation_policy=IsolationPolicy.DYNAMIC)
    changed = allocator.set_nodes([a_node("n", dynamic)])
    assert [held.id for held in changed] == ["a"]
    assert changed[0] == allocator.fleet.ledger["a"]
    assert changed[0].cards == (dynamic,)
    assert allocator.set_nodes([a_node("n", dynamic)]) == ()


@pytest.mark.parametrize(
    ("text", "milli"), [("gpu=2", 2000), ("gpu=1,tflops=25", 250), ("gpu=3,tflops=0.5,vram=8g", 1500), ("cpu=1", 0)]
)
def test_what_units_hold_of_cards_is_shown_exactly(text, milli):
    fleet = Books(a_node("n")).fleet
    found = fleet.holding(ResourceRequirement.from_string(text), 2)
    assert isinstance(found, CardHolding)
    assert found.gpu_milli == Fraction(2 * milli)


@pytest.mark.parametrize(("held", "share"), [((), 1000), (("tflops=25",), 750), (("gpu",), 0), (("tflops=99.99",), 0)])
def test_the_share_of_a_card_that_is_free_is_in_thousandths_rounded_down(held, share):
    books = Books(a_node("n"))
    for number, text in enumerate(held):
        books.run(f"v{number}", "n-0", of="" if text == "gpu" else text)
    assert books.fleet.card_rows.item(0, columns.SHARE) == share


@pytest.mark.parametrize("total", [1, 3, 16 * GIB, 2**44 + 1, 2**53 + 12345, 2**60])
@pytest.mark.parametrize("parts", [(0, 1), (1, 3), (1, 2), (5, 7), (1, 1)])
def test_the_free_part_of_any_amount_is_exact(total, parts):
    free = total * parts[0] // parts[1]
    for amount in {max(0, free - 1), free, -free}:
        assert part_of(amount, total) == amount * columns.FULL // total
