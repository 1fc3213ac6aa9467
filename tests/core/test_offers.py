"""What nodes offer a request, against a look at each node by itself, after every change of the books."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.books import a_card, a_node, ask, capped, found_with
from tests.core.zones import machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.decision import Candidates, Choice
from ullage.core.placing.offers import NodeRefusal, Offers
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import GpuPhase
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.profiles import SHIPPED
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure

pytestmark = pytest.mark.timeout(900)

TEXTS = (
    "gpu=1",
    "gpu=2",
    "gpu=0.5",
    "tflops=40,vram=4g",
    "gpu=2,tflops=60,vram=2g",
    "gpu=1,gpu_model=H100",
    "cpu=3,gpu=1,numa=restricted",
    "cpu=2,gpu=2,numa=single-numa-node",
)
RULES = (
    Rules(),
    capped(tflops=900),
    Rules(workers_per_node=2),
    Rules(oversubscription={"": Oversubscription(0, 0, 100)}),
)


def some_nodes(draw: random.Random) -> list[Node]:
    nodes = [machine(f"z{number}", cpus=(4, 4)) for number in range(3)]
    for number in range(24):
        name = f"n{number:02}"
        cards = [a_card(f"{name}-{k}", healthy=draw.random() > 0.1) for k in range(draw.choice((1, 2, 4)))]
        nodes.append(a_node(name, *cards, cordoned=draw.random() < 0.1))
    return nodes


def reported(books: FleetAllocator, offered: Offers, row: int) -> NodeRefusal | None:
    number = offered.refused.item(row)
    return None if number < 0 else offered.refusals[number]


def by_every_rule(books: FleetAllocator, request: Request, found: Candidates) -> Choice:
    with reserving(books.fleet, books.nominations.before(books.fleet, request)):
        chosen = books.select(request, found)
    assert isinstance(chosen, Choice)
    return chosen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_each_node_says_what_it_says_alone(seed: int):
    draw = random.Random(seed)
    books = FleetAllocator(Fleet(some_nodes(draw)), draw.choice(RULES))
    books.set_ready()
    fits = refuses = 0
    for step in range(40):
        request = ask(draw.choice(TEXTS), uid=f"r{step}")
        offered = books.offers(request)
        for row, node in enumerate(books.fleet.nodes):
            alone = found_with(books.fleet, books.rules, request, books.nominations, books.fleet.cards_on(row))
            said = reported(books, offered, row)
            assert (said is None) == bool(alone.by_node) == bool(offered.scores[row] > NO_ROOM), node.name
            if said is not None and Code.NOMINATED not in said.counts:
                assert said.helps == alone.curable
                assert said.cards == len(node.gpus)
                assert sorted(each.code for each in said.rejections) == sorted(
                    each.code for stage in alone.stages for each in stage.removed
                )
            if said is None:
                chosen = books.choose_on(request, node.name)
                assert isinstance(chosen, Choice)
                assert replace(chosen, cards=None) == replace(by_every_rule(books, request, alone), cards=None)
            fits += said is None
            refuses += said is not None
        if draw.random() < 0.7:
            books.alloc(request, 0.0)
        elif books.fleet.ledger:
            books.dealloc(draw.choice(sorted(books.fleet.ledger)), 1.0)
    assert fits > 50
    assert refuses > 50


def test_each_card_counts_once_by_what_was_said_of_it_first():
    node = a_node("n", a_card("a0", healthy=False), a_card("b1"), a_card("c2"), a_card("d3"))
    books = FleetAllocator(Fleet([node]))
    books.set_ready()
    books.bind(ask("tflops=80", uid="held"), ["b1"], 0.0)
    offered = books.offers(ask("gpu=3,tflops=50"))
    said = reported(books, offered, 0)
    assert said is not None
    assert said.counts == {Code.GPU_MISSING: 1, Code.GPU_COMPUTE: 1, Code.NOT_ENOUGH_CARDS: 2}
    assert (said.cards, said.helps) == (4, True)


def test_what_is_kept_for_another_is_told_so_and_only_while_it_is():
    books = FleetAllocator(Fleet([a_node("n")]))
    books.set_ready()
    ahead = ask("gpu=1", uid="ahead", priority=90)
    books.nominate(Nomination(ahead, "n", gpus=("n-0",)))
    offered = books.offers(ask("gpu=1", uid="later"))
    assert reported(books, offered, 0) == NodeRefusal.of(Code.NOMINATED, Cure.CAPACITY)
    assert reported(books, books.offers(ahead), 0) is None
    books.withdraw("ahead")
    assert reported(books, books.offers(ask("gpu=1", uid="later")), 0) is None


@pytest.mark.parametrize("seed", range(6))
def test_one_node_is_offered_and_chosen_as_among_all_whatever_is_reserved(seed: int):
    """Reservations on other nodes count only in quotas, and those of the tight one use it up."""
    draw = random.Random(seed)
    quotas = Quotas({"tight": Quota(max_workers=4), "team": Quota()})
    books = FleetAllocator(Fleet(some_nodes(draw)), replace(draw.choice(RULES), quotas=quotas))
    books.set_ready()
    names = [node.name for node in books.fleet.nodes]
    for step in range(60):
        namespace, priority = draw.choice(("tight", "team")), draw.choice((5, 10, 20))
        request = ask(draw.choice(TEXTS), uid=f"r{step}", namespace=namespace, priority=priority)
        if draw.random() < 0.5:
            how = {"owed": draw.random() < 0.3, "first_come": draw.random() < 0.3, "hold": draw.random() < 0.3}
            books.nominate(Nomination(request, draw.choice(names), **how))
        elif draw.random() < 0.5:
            books.alloc(request, 0.0)
        asked = ask(draw.choice(TEXTS), uid="asked", namespace=draw.choice(("tight", "team")))
        among_all = books.offers(asked)
        for row in draw.sample(range(len(names)), 4):
            alone = books.offers(asked, np.array([row]))
            assert reported(books, alone, row) == reported(books, among_all, row), names[row]
            assert alone.scores[row] == among_all.scores[row]
            chosen = books.choose_on(asked, names[row])
            assert isinstance(chosen, Choice) is bool(among_all.scores[row] > NO_ROOM)


def test_nodes_that_are_not_asked_about_are_not_looked_at():
    books = FleetAllocator(Fleet([a_node(f"n{number}") for number in range(20)]))
    books.set_ready()
    assert isinstance(books.alloc(ask("gpu=1", uid="held"), 0.0), Allocation)
    held = books.fleet.row_of[books.fleet.ledger["held"].node]
    asked = np.array([row for row in range(20) if row != held])
    assert (books.offers(ask("gpu=1"), asked).refused == -1).all()
    assert books.offers(ask("gpu=1"), np.array([held])).refused[held] >= 0


@pytest.mark.parametrize("pairs", [1, 8], ids=["one by one", "by kinds"])
def test_whether_it_would_help_if_others_left_is_told_of_each_layout_of_zones(pairs: int):
    nodes = [machine(f"apart{n}", cards=(0, 1), cpus=(4, 4)) for n in range(pairs)]
    nodes += [machine(f"beside{n}", cards=(0, 0), cpus=(4, 4)) for n in range(pairs)]
    books = FleetAllocator(Fleet(nodes))
    books.set_ready()
    for node in books.fleet.nodes:
        assert isinstance(books.bind(ask("gpu=2", uid=node.name), [gpu.uuid for gpu in node.gpus], 0.0), Allocation)
    offered = books.offers(ask("cpu=2,gpu=2,numa=single-numa-node"))
    for row, node in enumerate(books.fleet.nodes):
        said = reported(books, offered, row)
        assert said is not None
        assert said.helps == node.name.startswith("beside"), node.name


def test_the_quota_of_one_namespace_is_no_reason_for_another():
    """Requests of both ask the same, and one is answered before its quota is used up."""
    caps = {"first": Quota(total_requests=Caps(compute_gflops=200_000)), "other": Quota()}
    books = FleetAllocator(Fleet([a_node("n", a_card("c-0"), a_card("c-1"))]), Rules(quotas=Quotas(caps)))
    books.set_ready()
    asked = {name: replace(ask("gpu=1"), claim=Claim(name)) for name in caps}
    assert books.offers(asked["first"]).refused.tolist() == [-1]
    for n in range(2):
        assert isinstance(books.alloc(replace(asked["first"], uid=f"held-{n}"), 0.0), Allocation)
    offered = books.offers(asked["other"])
    refusal = reported(books, offered, 0)
    assert refusal is not None
    assert refusal.counts == {Code.GPU_NOT_IDLE: 2}
    at_home = reported(books, books.offers(asked["first"]), 0)
    assert at_home is not None
    assert set(at_home.counts) == {Code.QUOTA_TOTAL_COMPUTE_REQUEST}


A100: dict[str, object] = {"model": "NVIDIA A100-SXM4-40GB", "vendor": "NVIDIA", "vram_bytes": 40 * 2**30}
PROFILE = SHIPPED.of(replace(a_card("n-0"), **A100))
assert PROFILE is not None
CARDS: dict[str, dict[str, object]] = {
    "plain": {},
    "in partitions only": {"partitions": (), "isolation": Isolation.PARTITIONED},
    "in partitions of a model": {**A100, "partitions": PROFILE.templates, "isolation": Isolation.PARTITIONED},
    "soft": {"isolation": Isolation.SOFT},
    "hard": {"isolation": Isolation.HARD, "isolations": frozenset({Isolation.HARD})},
    "dynamic": {"isolation_policy": IsolationPolicy.DYNAMIC},
    "unhealthy": {"healthy": False},
    "cordoned": {"cordoned": True},
    "of a plugin": {"used_by": "other"},
    "updating": {"phase": GpuPhase.UPDATING},
    "in a pool": {"pool": "inference"},
    "without amounts": {"vram_bytes": None, "compute_gflops": None},
    "for one user": {"max_users": 1},
    "partitionable": A100,
    "of another vendor": {"vendor": "AMD", "model": "MI300X"},
}
ASKED = (*TEXTS, "gpu=1,percent=30", "gpu=1,partition=1g.5gb", "gpu=1,isolation=hard,vram=1g", "gpu=0.5,isolation=soft")


@pytest.mark.parametrize("text", ASKED)
@pytest.mark.parametrize("facts", CARDS.values(), ids=CARDS)
def test_a_node_is_offered_exactly_if_it_has_a_place_and_else_a_reason(facts: dict[str, object], text: str):
    card = replace(a_card("n-0"), **facts)
    books = FleetAllocator(Fleet([a_node("n", card)]), Rules(any_pool=True))
    books.set_ready()
    request = ask(text)
    offered = reported(books, books.offers(request), 0)
    placed = books.choose_on(request, "n")
    assert (offered is None) is isinstance(placed, Choice)
    if offered is not None and not isinstance(placed, Choice):
        assert offered.rejections
        assert {each.code for each in offered.rejections} == {each.code for each in placed.rejections}
