"""Whether freed capacity could help: judged over every card and node, not by the stage that emptied the list."""

from __future__ import annotations

import pytest
from tests.books import Books, a_card, a_node, ask, capped

from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import IsolationPolicy, Part
from ullage.model.rejection import Code

AMOUNTS = Part(101_000)
FULL, CORDONED = a_node("full"), a_node("off", cordoned=True)


def refused(books: Books, text: str, rules: Rules | None = None, **claim: object) -> Refusal:
    found = place(books.fleet, rules or Rules(), ask(text, **claim))
    assert isinstance(found, Refusal)
    return found


def test_a_cordoned_node_is_no_reason_where_another_one_is_full():
    reported = refused(Books(FULL, CORDONED).run("v", "full-0"), "tflops=80")
    assert (reported.code, reported.curable) == (
        Code.GPU_COMPUTE,
        True,
    )  # a cordoned node is no reason where another one is full


@pytest.mark.parametrize(
    ("nodes", "held", "text"),
    [
        pytest.param((CORDONED,), ("off-0",), "tflops=80", id="full and cordoned"),
        pytest.param((a_node("n"),), ("n-0",), "tflops=101", id="larger than the card"),
        pytest.param((a_node("n"),), ("n-0",), "gpu=2,tflops=10", id="fewer cards than asked"),
        pytest.param((a_node("m"), a_node("n")), ("n-0",), "gpu=2,tflops=10", id="enough cards, not on one node"),
        pytest.param((a_node("n"),), ("n-0",), "tflops=80,gpu_model=H100", id="another model"),
        pytest.param((a_node("n"),), ("n-0",), "tflops=80,cpu=65", id="a full card of a node with fewer cpus"),
        pytest.param((a_node("n"),), ("n-0",), "gpu=1,mem=2048g", id="a full node with less memory"),
        pytest.param(
            (a_node("n", a_card("n-0"), a_card("n-1", healthy=False)),), ("n-0",), "gpu=2,tflops=80", id="one is broken"
        ),
    ],
)
def test_what_nobody_could_free(nodes: tuple[Node, ...], held: tuple[str, ...], text: str):
    assert not refused(Books(*nodes).run("v", *held), text).curable


def test_a_node_with_too_little_for_now_and_too_little_for_good_is_no_hope():
    books = Books(a_node("n")).run("v", "n-0", of="cpu=32,tflops=1")
    assert refused(books, "tflops=1,cpu=33").curable
    assert not refused(books, "tflops=1,cpu=33,mem=2048g").curable


def test_a_quota_that_is_used_up_helps_nobody_whose_card_is_not_there():
    books = Books(a_node("n")).run("own", "n-0", of="tflops=50")
    assert refused(books, "tflops=60", capped(tflops=100)).curable
    for text in ("tflops=60,gpu_model=H100", "tflops=101,vram=1g"):
        reported = refused(books, text, capped(tflops=100))
        assert (reported.code, reported.curable) == (Code.QUOTA_TOTAL_COMPUTE_REQUEST, False)


def test_a_limit_that_a_full_node_could_never_promise():
    rules = Rules(oversubscription={"p": Oversubscription(0, 0, 100)})
    books = Books(a_node("n", a_card("n-0", pool="p"))).run("v", "n-0", of="tflops=100")
    assert refused(books, "tflops=80,pool=p", rules).curable
    assert not refused(books, "tflops=80,pool=p", rules, limit=AMOUNTS).curable


@pytest.mark.parametrize("isolation", ["soft", "hard", "shared"])
def test_a_card_that_is_too_small_is_refused_for_that_whoever_holds_it(isolation: str):
    """Its users are kept apart in another way, or are as many as it may have."""
    card = a_card("n-0", gib=3, isolation_policy=IsolationPolicy.DYNAMIC, max_users=1)
    books = Books(a_node("n", card)).run("v", "n-0", of=f"vram=1g,isolation={isolation}")
    reported = refused(books, "vram=8g,isolation=soft")
    assert (reported.code, reported.curable) == (Code.GPU_VRAM, False)
    assert str(reported) == "insufficient-vram: needs 8Gi vram, n-0 has 3Gi"


def test_memory_that_a_node_never_has_is_told_before_cpus_that_are_in_use():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-0", of="tflops=1,cpu=60")
    reported = refused(books, "tflops=10,cpu=8,mem=2048g")
    assert (reported.code, reported.curable) == (Code.MEMORY, False)
    assert refused(books, "tflops=10,cpu=8,mem=1g").code is Code.CPU
