"""The reason of a refusal: what nothing that ends could cure comes before cards that are busy meanwhile."""

import pytest
from tests.books import a_card

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.model.claim import Claim, Request
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

SMALL = 8_000, 64 << 30
LARGE = 200_000, 1 << 40


def refusal_of(text: str, *nodes: Node, held: tuple[str, ...] = ("a-0",)) -> Refusal:
    """The refusal of a request where these cards are held."""
    allocator = FleetAllocator(Fleet(nodes), Rules())
    allocator.set_ready()
    for card in held:
        allocator.assume(Request(f"on-{card}", ResourceRequirement.of(gpu=1), Claim()), [card], 0.0)
    found = allocator.alloc(Request("new", ResourceRequirement.from_string(text), Claim()), 1.0)
    assert isinstance(found, Refusal)
    return found


def a_node(name: str, amounts: tuple[int, int], cards: int = 2, **facts: object) -> Node:
    return Node(name, *amounts, tuple(a_card(f"{name}-{index}") for index in range(cards)), **facts)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("cpu=100,gpu=1", Code.CPU, "needs 100 cpu, a has 8"),
        ("cpu=100,gpu=1,vram=1g", Code.CPU, "needs 100 cpu, a has 8"),
        ("mem=100g,gpu=1", Code.MEMORY, "needs 100Gi memory, a has 64Gi"),
        ("gpu=2,links=island", Code.NOT_LINKED, "it needs 2 cards of one island"),
    ],
)
def test_what_the_node_never_has_is_the_reason_though_a_card_is_busy(text: str, code: Code, words: str) -> None:
    found = refusal_of(text, a_node("a", SMALL, 3))
    assert (found.code, found.curable) == (code, False)
    assert words in str(found)


def test_cards_of_a_node_that_is_too_small_are_no_reason_where_another_node_is_busy() -> None:
    small, large = a_node("a", SMALL), a_node("b", LARGE)
    found = refusal_of("cpu=100,gpu=1", small, large, held=("b-0", "b-1"))
    assert (found.code, found.curable) == (Code.GPU_NOT_IDLE, True)
    assert {each.node for each in found.rejections} == {"b"}


def test_a_busy_card_of_a_cordoned_node_is_no_reason() -> None:
    found = refusal_of("gpu=1", a_node("a", SMALL, cordoned=True), held=())
    assert (found.code, found.curable) == (Code.CORDONED, False)
