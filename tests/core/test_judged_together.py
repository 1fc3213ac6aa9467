"""Many cards are judged together, by classes of equal ones: each has the answer that it has alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.books import Books, a_card, a_node, ask

from ullage.core.placing.candidates import find
from ullage.core.placing.rules import Rules
from ullage.model.node import NodeState
from ullage.model.rejection import Code

TEXTS = ("gpu=1", "gpu=2", "gpu=1,cpu=40,mem=1g", "tflops=60", "gpu=2,tflops=10,mem=700g", "gpu=0.5,cpu=1")

_KINDS = (
    (False, NodeState.READY, 64_000, 100),
    (True, NodeState.READY, 64_000, 100),
    (False, NodeState.NOT_READY, 64_000, 100),
    (True, NodeState.NOT_READY, 64_000, 100),
    (False, NodeState.READY, 32_000, 100),
    (False, NodeState.READY, 64_000, 1),
)


@st.composite
def worlds(draw: st.DrawFn) -> Books:
    """Nodes that differ in whether they may be used, in their CPUs, places and cards, and in what runs there."""
    nodes = []
    for name in ("a", "b", "c", "d", "e")[: draw(st.integers(2, 5))]:
        cordoned, state, cpu_milli, places = draw(st.sampled_from(_KINDS))
        cards = [a_card(f"{name}-{n}", healthy=draw(st.booleans())) for n in range(draw(st.integers(1, 2)))]
        node = a_node(name, *cards, cordoned=cordoned, state=state, max_executors=places)
        nodes.append(replace(node, cpu_milli=cpu_milli))
    books = Books(*nodes)
    for number, card in enumerate(
        draw(st.lists(st.sampled_from(sorted(books.fleet.card_of)), unique=True, max_size=3))
    ):
        books.run(f"v{number}", card, of=draw(st.sampled_from(("tflops=50,vram=8g", "cpu=1", "cpu=20"))))
    return books


@given(worlds(), st.sampled_from(TEXTS))
def test_each_node_has_the_answer_that_it_has_alone(books, text):
    fleet, request = books.fleet, ask(text)
    together = find(fleet, Rules(), request)
    reasons = {rejection.gpu: rejection for stage in together.stages for rejection in stage.removed if rejection.gpu}
    for row, node in enumerate(fleet.nodes):
        alone = find(fleet, Rules(), request, fleet.cards_on(row))
        assert together.by_node.get(node.name) == alone.by_node.get(node.name)
        for stage in alone.stages:
            for rejection in stage.removed:
                if rejection.gpu:
                    assert reasons[rejection.gpu] == rejection


def test_nodes_that_differ_only_in_whether_they_may_be_used_are_not_equal():
    nodes = [
        a_node(name, a_card(f"{name}-0"), cordoned=cordoned, state=state)
        for name, cordoned, state in [
            ("a", False, NodeState.NOT_READY),
            ("b", False, NodeState.READY),
            ("c", True, NodeState.READY),
            ("d", True, NodeState.NOT_READY),
        ]
    ]
    found = find(Books(*nodes).fleet, Rules(), ask("gpu=1"))
    assert found.by_node == {"b": ("b-0",)}
    removed = {each.node: each.code for stage in found.stages for each in stage.removed}
    assert removed == {"a": Code.NOT_READY, "c": Code.CORDONED, "d": Code.CORDONED}
