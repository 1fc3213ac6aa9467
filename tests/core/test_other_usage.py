"""What others use of a node outside the ledger: it is missing while they are there."""

from __future__ import annotations

import pytest
from tests.books import COLUMNS, Books, a_node, ask

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import OtherUsage
from ullage.core.placing.decision import Choice
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose
from ullage.model.node import Node

SOME = OtherUsage(4_000, 2**30, 2)


def columns(fleet: Fleet) -> list[list[int]]:
    return [getattr(fleet, name).tolist() for name in (*COLUMNS, "slots_total")]


def fitting(fleet: Fleet, text: str) -> str | None:
    found = choose(fleet, Rules(workers_per_node=None), ask(f"gpu=1,{text}"))
    return found.node if isinstance(found, Choice) else None


def test_a_node_has_as_much_less_as_others_use():
    books = Books(a_node("n"), a_node("o")).run("v", "n-0", of="cpu=1,tflops=1")
    plain = columns(books.fleet)
    books.fleet.set_other_usage("n", SOME)
    smaller = Node("n", 60_000, 2**40 - 2**30, a_node("n").gpus, max_executors=a_node("n").max_executors - 2)
    assert columns(books.fleet) == columns(Books(smaller, a_node("o")).run("v", "n-0", of="cpu=1,tflops=1").fleet)
    books.fleet.set_other_usage("n", OtherUsage())
    assert columns(books.fleet) == plain


@pytest.mark.parametrize(
    ("has", "text"),
    [
        (OtherUsage(cpu_milli=1), "cpu=64"),
        (OtherUsage(memory_bytes=1), "mem=1024g"),
        (OtherUsage(slots=1), "tflops=1"),
    ],
)
def test_a_request_that_found_no_room_finds_some_when_others_use_less(has, text):
    fleet = Fleet([a_node("n", max_executors=1)])
    assert fitting(fleet, text) == "n"
    fleet.set_other_usage("n", has)
    assert fitting(fleet, text) is None
    fleet.set_other_usage("n", OtherUsage())
    assert fitting(fleet, text) == "n"


def test_less_of_one_thing_makes_room_even_where_there_is_more_of_another():
    fleet = Fleet([a_node("n")])
    fleet.set_other_usage("n", OtherUsage(cpu_milli=1_000))
    assert fitting(fleet, "cpu=64") is None
    fleet.set_other_usage("n", OtherUsage(memory_bytes=2**30))
    assert fitting(fleet, "cpu=64") == "n"
    assert fitting(fleet, "mem=1024g") is None
