"""How zones count among nodes: absolute or relative to the other candidates, and how much."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.core.zones import machine

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import FIRST_CARD, Rows
from ullage.core.kernel.compiled import inlined
from ullage.core.placing.placement import Table, table_of
from ullage.core.strategies import strategy_named
from ullage.core.strategies.leftover import leftover
from ullage.core.strategies.strategy import Strategy, equal_cards
from ullage.core.strategies.workload import whole_workload
from ullage.core.topology.rules import ZoneRules
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

Q = (0, 0, 1, 1, 2, 2, 3, 3)


@inlined
def _nothing(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, note: Rows) -> float:
    return 0.0


@inlined
def _first(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: Any, out: Rows) -> None:
    count = 0
    for k in range(len(units)):
        if units[k] and count < len(out):
            out[count] = nodes[row, FIRST_CARD] + k
            count += 1


ZONES_ALONE = Strategy("zones-alone", _nothing, equal_cards, _first, (np.zeros(1),), closeness=1.0, near=True)
"""Says nothing of nodes itself, and a hundredth of closeness is 1."""


def taken(node: Node, free: list[int]) -> list[Allocation]:
    """Whoever holds the other cards of a machine."""
    rest = [gpu.uuid for gpu in node.gpus if gpu.index not in free]
    return [Allocation(uuid, node.name, ResourceRequirement.of(gpu=1), (uuid,)) for uuid in rest]


def fleet_of(free: dict[str, list[int]], **rules: Any) -> Fleet:
    """Machines of layout Q with these cards free."""
    nodes = {name: machine(name, cards=Q, cpus=(), zones=(0, 1, 2, 3)) for name in free}
    held = [each for name, node in nodes.items() for each in taken(node, free[name])]
    return Fleet(nodes.values(), held, zone_rules=ZoneRules(**rules))


def scores(fleet: Fleet, text: str = "gpu=4", strategy: Strategy = ZONES_ALONE) -> list[float]:
    return table(fleet, text, strategy).ranked.tolist()


def table(fleet: Fleet, text: str, strategy: Strategy = ZONES_ALONE) -> Table:
    return table_of(fleet, ResourceRequirement.from_string(text), strategy).refreshed()


FOUR = [0, 2, 4, 6]
"""A card of each zone of Q."""


def test_a_score_is_absolute_unless_it_is_said():
    fleet = fleet_of({"a": [0, 1, 2, 3], "b": [0, 1, 2, 4], "c": FOUR})
    assert scores(fleet) == [50, 33, 25]


@pytest.mark.parametrize(("weight", "expected"), [(0.0, [0, 0]), (0.5, [25, 12.5]), (10.0, [500, 250])])
def test_the_weight_is_the_operator_s(weight, expected):
    assert scores(fleet_of({"a": [0, 1, 2, 3], "b": FOUR}, weight=weight)) == expected


def test_what_has_to_be_aligned_goes_before_all_whatever_the_weight():
    fleet = fleet_of({"a": FOUR, "b": [0, 1, 2, 3]}, weight=0.0)
    found = scores(fleet, "gpu=4,numa=best-effort")
    assert found[1] > found[0] > 2**32


@pytest.mark.parametrize("relative", [False, True])
def test_a_part_of_a_card_goes_where_it_is_near_and_not_where_it_leaves_most(relative):
    """The half card that is free on a is what best goes with the workload; its CPUs would lie in the other zone."""
    nodes = machine("a", cards=(0,), cpus=(4, 4), reserved=range(4)), machine("b", cards=(0, 0), cpus=(8, 8))
    half, wanted = ResourceRequirement.from_string("gpu=0.5"), "cpu=2,gpu=0.5"
    fleet = Fleet(nodes, zone_rules=ZoneRules(relative=relative))
    charges = table_of(fleet, half, strategy_named("best-fit")).charges([0])
    fleet.charge(Allocation("h", "a", half, ("a-g0",), charges=charges))
    by = leftover(fleet, whole_workload([ResourceRequirement.of(gpu=1), half, ResourceRequirement.of(gpu=2)]))
    for text, node in ((wanted, 0), (f"{wanted},numa=best-effort", 1)):
        assert table(fleet, text, by).choose()[0] == node


def test_relative_to_the_candidate_that_needs_most_zones():  # 58
    rules = {"weight": 10.0, "relative": True}
    assert scores(fleet_of({"a": [0, 1], "b": [0, 2]}, **rules), "gpu=2") == [500, 0]
    two = fleet_of({"a": [0, 1, 2, 3], "b": FOUR}, **rules)
    assert scores(two) == [500, 0]
    assert scores(fleet_of({"a": [0, 1], "b": [0, 2]}, **rules), "gpu=1") == [0, 0]
    alone = fleet_of({"a": [0, 1, 2, 3]}, **rules)
    assert scores(alone) == [0]


def test_one_two_and_four_zones():  # 58
    nodes = [
        machine("a", cards=(0,) * 4, cpus=(), zones=(0, 1, 2, 3)),
        machine("b", cards=(0, 0, 1, 1), cpus=(), zones=(0, 1, 2, 3)),
        machine("c", cards=(0, 1, 2, 3), cpus=(), zones=(0, 1, 2, 3)),
    ]
    assert scores(Fleet(nodes, zone_rules=ZoneRules(weight=10.0, relative=True))) == [750, 500, 0]
    assert scores(Fleet(nodes[:2], zone_rules=ZoneRules(weight=10.0, relative=True))) == [500, 0]


def test_a_machine_whose_zones_are_not_known_is_behind_all_others():
    nodes = [machine("a", cards=(0, 1), cpus=()), machine("b", cards=(None, None), cpus=())]
    nodes[1] = Node("b", 0, 1 << 40, nodes[1].gpus)
    found = scores(Fleet(nodes, zone_rules=ZoneRules(relative=True)), "gpu=2")
    assert found[0] > found[1]


@pytest.mark.parametrize("strategy", ["zones-alone", "best-fit", "node-compact-gpu-low-load"])
def test_scores_follow_the_candidates_as_a_new_table_has_them(strategy):
    chance = random.Random(5)
    by = ZONES_ALONE if strategy == "zones-alone" else strategy_named(strategy)
    fleet = fleet_of({name: list(range(8)) for name in "abcdef"}, relative=True)
    seen = set()
    for number in range(60):
        kept = table(fleet, "gpu=3", by)
        row = kept.best()
        anew = table(fleet.copy(), "gpu=3", by)
        assert (kept.ranked == anew.ranked).all()
        assert kept.best() == anew.best()
        seen.add(row)
        if row is not None and chance.random() < 0.6:
            cards = chance.sample(kept.eligible(row), 3)
            fleet.charge(
                Allocation(f"r{number}", fleet.nodes[row].name, ResourceRequirement.of(gpu=3), fleet.uuids(cards))
            )
        elif fleet.ledger:
            fleet.release(chance.choice(sorted(fleet.ledger)))
    assert len(seen) > 3


@pytest.mark.parametrize("relative", [False, True])
def test_tables_of_several_requests_and_strategies_are_each_as_if_it_was_alone(relative):
    """Those of one fleet share what they can; some of them write to it."""
    chance, texts = random.Random(6), ("gpu=1", "gpu=3", "gpu=0.5", "cpu=1,gpu=2,numa=best-effort")
    nodes = [machine(name, cards=Q, cpus=(4, 4), zones=(0, 1, 2, 3)) for name in "abcd"]
    fleet = Fleet(nodes, zone_rules=ZoneRules(relative=relative))
    seen = whole_workload([ResourceRequirement.from_string(text) for text in ("gpu=1", "gpu=0.5", "gpu=4")])
    by_name = {"zones-alone": ZONES_ALONE, "best-fit": strategy_named("best-fit"), "leftover": leftover(fleet, seen)}
    for number in range(25):
        for text in texts:
            for name, by in by_name.items():
                again = fleet.copy()
                alone = table(again, text, leftover(again, seen) if name == "leftover" else by)
                kept = table(fleet, text, by)
                assert (kept.ranked.tolist(), kept.opened.tolist()) == (alone.ranked.tolist(), alone.opened.tolist())
                assert kept.choose() == alone.choose()
        if fleet.ledger and chance.random() < 0.3:
            fleet.release(chance.choice(sorted(fleet.ledger)))
        text = chance.choice(texts)
        kept = table(fleet, text, by_name["best-fit"])
        if (taken := kept.choose()) is not None:
            row, cards = taken
            asked = ResourceRequirement.from_string(text)
            charges = kept.charges(cards)
            fleet.charge(Allocation(f"r{number}", nodes[row].name, asked, fleet.uuids(cards), charges=charges))
