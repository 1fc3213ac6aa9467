"""Which node, which cards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import columns as at
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose
from ullage.core.sharing.entitlement import place_unit, shortage
from ullage.core.sharing.world import Demand
from ullage.core.verdict.cards import charges_on, refusal_of
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.node import Node, NodeState
from ullage.model.part import CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import zones_of


def request(text: str) -> ResourceRequirement:
    return ResourceRequirement.from_string(text)


def used(node: Node, resreq: str = "cpu=1", cards: int = 0) -> Allocation:
    uuids = tuple(gpu.uuid for gpu in node.gpus[:cards])
    return Allocation(f"held/{node.name}", node.name, request(resreq), uuids)


def place(nodes: list[Node], resreq: str, held: list[Allocation] | None = None, *, spread: bool = False) -> str | None:
    policy = Policy(strategy="spread" if spread else "best-fit")
    allocation = Placer(Fleet(nodes, held or []), policy).place("x", request(resreq))
    return None if allocation is None else allocation.node


def test_an_id_is_placed_once():
    fleet = Fleet([WITH_CARDS])
    placer = Placer(fleet, Policy())
    assert placer.place("x", request("gpu=1")) is not None
    with pytest.raises(Conflict, match="x is already in the ledger"):
        placer.place("x", request("gpu=1"))
    assert list(fleet.ledger) == ["x"]
    assert int((fleet.card_users > 0).sum()) == 1


def test_among_no_nodes_there_is_no_place():
    fleet, none = Fleet([WITH_CARDS]), np.array([], dtype=np.int64)
    assert choose(fleet, Rules(), Request("x", request("gpu=1")), none) is None


A, B, C = a_node("a", 8), a_node("b", 8), a_node("c", 4)
WITH_CARDS = a_node("a", 8, gpus=4)


@pytest.mark.parametrize(
    ("nodes", "resreq", "held", "expected"),
    [
        pytest.param([WITH_CARDS, B], "cpu=1", [], "b", id="work without cards goes where there are none"),
        pytest.param([WITH_CARDS, B], "cpu=1", [used(WITH_CARDS)], "b", id="even if the one with cards is in use"),
        pytest.param([WITH_CARDS, B], "cpu=1", [used(B, "cpu=8")], "a", id="but rather there than not at all"),
        pytest.param([WITH_CARDS, B], "gpu=1", [], "a", id="cards are where they are"),
        pytest.param([A, B], "cpu=1", [used(B)], "b", id="used before empty"),
        pytest.param([A, B], "cpu=1", [used(A), used(B, "cpu=5")], "b", id="the tightest of the used"),
        pytest.param([A, B, C], "cpu=2", [], "c", id="the tightest of the empty"),
        pytest.param([B, A], "cpu=1", [], "a", id="ties by name"),
        pytest.param([A, B], "cpu=9", [], None, id="larger than any node"),
        pytest.param([A, B], "cpu=8", [used(A), used(B)], None, id="larger than what is left of any"),
    ],
)
def test_a_request_goes_to(nodes, resreq, held, expected):
    assert place(nodes, resreq, held) == expected


@pytest.mark.parametrize(
    ("nodes", "held", "expected"),
    [
        pytest.param([A, B], [used(A)], "b", id="empty before used"),
        pytest.param([A, B, C], [used(A), used(B, "cpu=5"), used(C)], "a", id="the emptiest of the used"),
        pytest.param([WITH_CARDS, B], [used(B)], "b", id="nodes with cards stay for work with cards"),
    ],
)
def test_spread_goes_to(nodes, held, expected):
    assert place(nodes, "cpu=1", held, spread=True) == expected


@pytest.mark.parametrize(
    "facts",
    [
        {"cordoned": True},
        {"state": NodeState.UNKNOWN},
        {"state": NodeState.NOT_READY},
        {"max_executors": 0},
    ],
    ids=["cordoned", "unknown", "not ready", "without executors"],
)
def test_nothing_is_placed_on_a_node_that_is(facts):
    assert place([replace(A, **facts)], "cpu=1") is None
    assert place([replace(A, **facts), B], "cpu=1") == "b"


def test_a_node_takes_no_more_executors_than_it_may():
    placer = Placer(Fleet([replace(A, max_executors=2)]), Policy())
    assert [placer.place(str(i), request("cpu=1")) is not None for i in range(3)] == [True, True, False]


def test_an_overfull_node_takes_nothing():
    assert place([a_node("a", 2)], "cpu=1", [used(A, "cpu=4")]) is None
    assert place([a_node("a", 2)], "mem=1g", [used(A, "cpu=4")]) == "a"


def zoned(*zones: int | None, sick: frozenset[int] = frozenset()) -> Node:
    cards = tuple(Gpu(f"g{i}", i, zones=zones_of(zone), healthy=i not in sick) for i, zone in enumerate(zones))
    return replace(a_node("n", 64), gpus=cards)


def cards_of(node: Node, count: int, taken: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    held = [Allocation("held", node.name, request(f"gpu={len(taken)}"), taken)] if taken else []
    allocation = Placer(Fleet([node], held), Policy()).place("x", request(f"gpu={count}"))
    return None if allocation is None else allocation.gpus


@pytest.mark.parametrize(
    ("node", "count", "taken", "expected"),
    [
        pytest.param(zoned(0, 0, 1, 1), 2, (), ("g0", "g1"), id="one zone"),
        pytest.param(zoned(0, 0, 1, 1), 2, ("g0",), ("g2", "g3"), id="the zone that has enough"),
        pytest.param(zoned(0, 1, 0, 1), 2, (), ("g0", "g2"), id="by zone, not by position"),
        pytest.param(zoned(0, 0, 0, 1, 1), 2, (), ("g3", "g4"), id="the zone in which the least is left over"),
        pytest.param(zoned(0, 0, 0, 1, 1), 1, ("g3",), ("g4",), id="the fuller zone for one card"),
        pytest.param(zoned(0, 0, 1, 1), 3, (), ("g0", "g1", "g2"), id="several zones if none has enough"),
        pytest.param(zoned(None, None, None), 2, (), ("g0", "g1"), id="unknown zones are one"),
        pytest.param(zoned(0, 0, 1, 1, sick=frozenset({1})), 2, (), ("g2", "g3"), id="never a sick card"),
        pytest.param(zoned(0, 0, sick=frozenset({0})), 2, (), None, id="rather none than a sick card"),
        pytest.param(zoned(0, 0), 2, ("g1",), None, id="never a card that is held"),
    ],
)
def test_cards_given_are(node, count, taken, expected):
    assert cards_of(node, count, taken) == expected


def test_two_executors_never_share_a_card():
    placer = Placer(Fleet([zoned(0, 0, 1, 1)]), Policy())
    given_out = [placer.place(str(i), request("gpu=1")) for i in range(5)]
    assert given_out[4] is None
    assert len({uuid for a in given_out[:4] for uuid in a.gpus}) == 4


def test_a_batch_is_placed_whole_or_not_at_all():
    fleet = Fleet([a_node("a", 2), a_node("b", 1)])
    demand = Demand("s", 0, request("cpu=1"), batch_size=4)
    assert place_unit(Placer(fleet, Policy()), demand, "x", 4) is None
    assert not fleet.ledger
    placed = place_unit(Placer(fleet, Policy()), demand, "x", 3)
    assert sorted(allocation.node for allocation in placed) == ["a", "a", "b"]


def test_a_place_counts_only_if_it_is_free_in_both_books():
    now, later = Fleet([A, B]), Fleet([A, B], [used(A, "cpu=8")])
    assert Placer(now, Policy()).place("x", request("cpu=1"), Placer(later, Policy())).node == "b"
    assert "x" in now.ledger
    assert "x" in later.ledger


def test_cards_held_for_another_are_not_given():
    node = zoned(0, 0, 1, 1)
    now, later = Fleet([node]), Fleet([node], [Allocation("other", "n", request("gpu=2"), ("g0", "g1"))])
    assert Placer(now, Policy()).place("x", request("gpu=2"), Placer(later, Policy())).gpus == ("g2", "g3")
    assert Placer(now, Policy()).place("y", request("gpu=1"), Placer(later, Policy())) is None


@pytest.mark.parametrize(
    ("resreq", "held", "batch", "expected"),
    [
        pytest.param("cpu=1", [used(WITH_CARDS, "cpu=8")], 1, Code.CPU, id="cpu"),
        pytest.param("mem=1g", [used(WITH_CARDS, "mem=64g")], 1, Code.MEMORY, id="memory"),
        pytest.param("cpu=1,gpu=2", [used(WITH_CARDS, "gpu=3", 3)], 1, Code.GPU, id="cards"),
        pytest.param("cpu=4", [], 4, Code.GANG_ROOM, id="room for some of a batch"),
    ],
)
def test_what_is_short_is(resreq, held, batch, expected):
    demand = Demand("s", 0, request(resreq), batch_size=batch)
    assert shortage(Fleet([WITH_CARDS], held), demand) is expected


requests = st.builds(ResourceRequirement.of, cpu=st.integers(1, 4), memory=st.just(0), gpu=st.integers(0, 2))


@pytest.mark.long
@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=4),
    st.lists(requests, max_size=25),
    st.booleans(),
)
def test_something_is_placed_exactly_if_some_node_has_room(sizes, asked, spread):
    nodes = [a_node(f"n{i}", cpu, gpus=gpus) for i, (cpu, gpus) in enumerate(sizes)]
    placer = Placer(Fleet(nodes), Policy(strategy="spread" if spread else "best-fit"))
    free = {node.name: [node.cpu_milli, len(node.gpus)] for node in nodes}
    for i, requirement in enumerate(asked):
        fits = {n for n, (cpu, gpus) in free.items() if cpu >= requirement.cpu_milli and gpus >= requirement.gpu_count}
        room = dict(zip(free, placer.room(requirement).tolist(), strict=True))
        assert {name for name, executors in room.items() if executors} == fits
        allocation = placer.place(str(i), requirement)
        assert (allocation is not None) == bool(fits)
        if allocation is not None:
            assert allocation.node in fits
            free[allocation.node][0] -= requirement.cpu_milli
            free[allocation.node][1] -= requirement.gpu_count


GIB = 1 << 30
FACTS: tuple[dict[str, object], ...] = (
    {},
    {"vram_bytes": 80 * GIB, "compute_gflops": 312_000, "model": "NVIDIA A100-SXM4-80GB"},
    {"vram_bytes": 24 * GIB, "compute_gflops": 90_000, "isolation_policy": IsolationPolicy.DYNAMIC},
    {"vram_bytes": 24 * GIB},
    {"vram_bytes": 24 * GIB, "compute_gflops": 90_000, "max_users": 2},
    {"vram_bytes": 16 * GIB, "compute_gflops": 50_000, "isolation": Isolation.HARD, "healthy": False},
)
PARTS = (None, Part(), Part(10_000, 4 * GIB), Part(0, 9 * GIB), Part(compute_ppm=300_000, vram_ppm=300_000))
POSITIONS = (0, 1, 90)
fleets = st.lists(st.lists(st.sampled_from(FACTS), max_size=3), min_size=1, max_size=3)
of_cards = st.builds(
    lambda indices, uuids, part, mode: ResourceRequirement(
        gpu_count=len(indices),
        part=part,
        cards=CardSelector(
            indices=indices if all(indices) else (),
            isolation=Isolation.SHARED if part is None else mode,
            uuids=uuids[0],
            not_uuids=uuids[1],
        ),
    ),
    st.sampled_from(((0,), (0, 1), (1,), (90,), (90, 1), (7, 3))),
    st.sampled_from([((), ())] * 3 + [(("g0-0", "g1-1", "gone"), ()), ((), ("g0-1", "gone")), (("g0-0",), ("g0-0",))]),
    st.sampled_from(PARTS),
    st.sampled_from(Isolation),
)


def fleet_with(kinds: list[list[dict[str, object]]]) -> Fleet:
    return Fleet(
        replace(
            a_node(f"n{n}", 8), gpus=tuple(Gpu(f"g{n}-{i}", POSITIONS[i], **facts) for i, facts in enumerate(cards))
        )
        for n, cards in enumerate(kinds)
    )


@pytest.mark.long
@settings(max_examples=200)
@given(
    fleets,
    st.lists(st.tuples(of_cards, st.integers(0, 8), st.booleans(), st.booleans()), max_size=16),
    st.lists(of_cards, min_size=1, max_size=4),
)
def test_numbers_decide_as_the_filters_explain(kinds, history, looks):
    """Also after cards were taken, given back and tried, on tables that only followed."""
    fleet = fleet_with(kinds)
    for step, (asked, card, give_back, tried) in enumerate(history):
        mark = fleet.checkpoint()
        if give_back and card < len(fleet.cards) and fleet.holders[card]:
            fleet.release(next(iter(fleet.holders[card])))
        elif card < len(fleet.cards) and refusal_of(fleet, card, asked) is None:
            charges = charges_on(fleet, [card], asked)
            node = fleet.nodes[int(fleet.card_row[card])].name
            fleet.charge(Allocation(f"h{step}", node, asked, fleet.uuids([card]), charges=charges))
        agree(fleet, looks)
        if tried:
            fleet.rollback(mark)
        else:
            fleet.keep(mark)
    agree(fleet, looks)


@settings(max_examples=100)
@given(fleets, st.lists(st.tuples(of_cards, st.integers(0, 2), st.booleans()), max_size=16))
def test_columns_after_placements_are_inventory_minus_ledger(kinds, history):
    """Whoever chose: the compiled loop that charges what it takes, or the filters."""
    fleet = fleet_with(kinds)
    placer = Placer(fleet, Policy(strategy="best-fit"))
    for step, (asked, cpu, give_back) in enumerate(history):
        if give_back and fleet.ledger:
            fleet.release(next(iter(fleet.ledger)))
        placer.place(f"p{step}", replace(asked, cpu_milli=1000 * cpu))
        again = Fleet(fleet.nodes, fleet.ledger.values())
        assert (columns(fleet), fleet.holders) == (columns(again), again.holders)
        assert again.dirty <= fleet.dirty


def columns(fleet: Fleet) -> tuple[object, ...]:
    """All but when nodes changed."""
    order = (at.CHANGED, at.FREED, at.BEFORE, at.AFTER)
    return np.delete(fleet.node_rows, order, axis=1).tolist(), fleet.card_rows.tolist()


def test_cards_of_one_kind_differ_only_in_who_they_are_and_where_they_sit():
    fleet = fleet_with([[FACTS[1], FACTS[1], FACTS[3]], [FACTS[3], FACTS[1]]])
    assert fleet.uuids(fleet.kinds) == ("g0-0", "g0-2")


def agree(fleet: Fleet, looks: list[ResourceRequirement]) -> None:
    for asked in looks:
        kept = [card for card in range(len(fleet.cards)) if refusal_of(fleet, card, asked) is None]
        table = Placer(fleet, Policy()).table(asked)
        assert [card for row in range(len(fleet.nodes)) for card in table.eligible(row)] == kept
        again = Placer(fleet.copy(), Policy()).table(asked)
        assert (table.room.tolist(), table.ranked.tolist()) == (again.room.tolist(), again.ranked.tolist())
