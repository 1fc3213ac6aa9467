"""Taints of nodes in the one verdict: placement, refusals, victims, moves, and what is there already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.allocator import FleetAllocator
from ullage.core.books.exclusion import Exclusion
from ullage.core.books.fleet import Fleet
from ullage.core.books.labels import Labels
from ullage.core.explaining.nowhere import nowhere
from ullage.core.explaining.nowhere_text import nowhere_text
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.offers import offers
from ullage.core.placing.placement import table_of
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.core.strategies import strategy_named
from ullage.core.verdict.cards import CardVerdicts, exclusion_of, refusal_of
from ullage.core.verdict.nodes import unsuited
from ullage.core.verdict.sentences import reject_text
from ullage.model.affinity import ANY_NODE, Expression, NodeAffinity, Operator
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement
from ullage.model.taint import Taint, Toleration, tolerated
from ullage.model.topology import ZonePolicy

TEAM_A = Taint("dedicated", "team-a", "NoSchedule")
POOL = (TEAM_A, Taint("dedicated", "team-b", "NoSchedule"), Taint("gpu", "", "NoExecute"))
taint_sets = st.lists(st.sampled_from(POOL), max_size=2, unique=True).map(tuple)
tolerations = st.lists(
    st.sampled_from(
        [
            Toleration("dedicated", "Equal", "team-a"),
            Toleration("dedicated", "Exists", "", "NoSchedule"),
            Toleration("gpu", "Exists"),
            Toleration("gpu", "Exists", "", "NoSchedule"),
            Toleration(operator="Exists", effect="NoExecute"),
        ]
    ),
    max_size=2,
).map(tuple)
terms = st.sampled_from([(), ((Expression("zone", Operator.IN, ("a",)),),)])


def a_fleet(*taints: tuple[Taint, ...]) -> Fleet:
    """Nodes n0, n1, ... with these taints, two cards each; every second one is in zone a."""
    return Fleet(
        Node(
            f"n{k}",
            8000,
            64 << 30,
            tuple(Gpu(f"g{k}-{j}", j) for j in range(2)),
            labels={"zone": "ab"[k % 2]},
            taints=each,
        )
        for k, each in enumerate(taints)
    )


def asked(nodes: NodeAffinity = ANY_NODE, gpu: int = 1) -> ResourceRequirement:
    """Return a request for a core, and for a card or else a core of the same zone."""
    near = Alignment(ZonePolicy.BEST_EFFORT, (ContainerNeeds("c", AlignmentStage.APP, cpus=1),))
    plain = replace(ResourceRequirement.of(cpu=1, gpu=gpu), nodes=nodes)
    return plain if gpu else replace(plain, alignment=near)


@settings(max_examples=100)
@given(st.lists(taint_sets, min_size=1, max_size=8), st.builds(NodeAffinity, terms, tolerations=tolerations))
def test_placement_verdicts_and_offers_follow_the_rule_for_one_node(
    taints: list[tuple[Taint, ...]], nodes: NodeAffinity
) -> None:
    fleet = a_fleet(*taints)
    may = [nodes.allows(node.name, node.labels) and tolerated(node.taints, nodes.tolerations) for node in fleet.nodes]
    exclusion = Exclusion(Labels(fleet.nodes))
    for _ in range(2):  # made, then remembered
        assert exclusion.allowed(nodes).tolist() == may
    assert [unsuited(node, nodes) is None for node in fleet.nodes] == may
    for gpu in (0, 1):
        request = asked(nodes, gpu)
        table = table_of(fleet, request, strategy_named("best-fit")).refreshed()
        assert (table.room > 0).tolist() == may
        found = offers(fleet, Rules(), Request("u", request))
        assert (found.refused < 0).tolist() == may
        chosen = place(fleet, Rules(), Request("u", request))
        assert (isinstance(chosen, Choice) and may[fleet.row_of[chosen.node]]) == any(may)
    cards = [row for row in range(len(may)) for _ in range(2)]
    verdicts = CardVerdicts(fleet, asked(nodes), np.arange(len(cards)))
    for card, row in enumerate(cards):
        against = refusal_of(fleet, card, asked(nodes))
        assert (against is None) == may[row]
        if against is not None:
            expected = unsuited(fleet.nodes[row], nodes)
            assert expected is not None
            assert (against.code, against.found) == (expected.code, expected.found)
            assert verdicts.rejection(card) == against
            assert exclusion_of(fleet, card, asked(nodes)) == against


def test_without_tainted_nodes_tolerations_exclude_nothing_and_make_no_mask() -> None:
    fleet = a_fleet((), ())
    nodes = NodeAffinity(tolerations=(Toleration("gpu", "Exists"),))
    assert not fleet.exclusion.excludes(nodes)
    assert not fleet.exclusion.excludes(ANY_NODE)
    assert a_fleet((), (TEAM_A,)).exclusion.excludes(ANY_NODE)


def test_a_refusal_names_the_taints_of_the_nodes() -> None:
    fleet = a_fleet((TEAM_A,), (Taint("gpu", "", "NoExecute"),))
    refused = place(fleet, Rules(), Request("u", asked()))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.rejections[0].cure) == (Code.NODE_TAINTED, Cure.NODE_CHANGE)
    assert str(refused) == (
        "node-tainted: the node has a taint that the request does not tolerate: "
        "dedicated=team-a:NoSchedule on node n0, gpu:NoExecute on node n1"
    )
    one = exclusion_of(fleet, 0, asked())
    assert one is not None
    assert reject_text(one).endswith(": dedicated=team-a:NoSchedule on node n0")


def test_a_request_that_fits_nowhere_names_the_taint() -> None:
    fleet = a_fleet((TEAM_A,), (TEAM_A,))
    for gpu in (0, 1):
        request = Request("u", asked(gpu=gpu))
        found = offers(fleet, Rules(), request)
        numbers = found.refused.tolist()
        refused = [(found.refusals[number], [f"n{row}"]) for row, number in enumerate(numbers)]
        assert {each.rejections[0].code for each, _ in refused} == {Code.NODE_TAINTED}
        assert not any(each.helps for each, _ in refused)
        text = nowhere_text(nowhere(fleet, Rules(), request, refused))
        assert "taint that the request does not tolerate: dedicated=team-a:NoSchedule on node n0" in text
        assert "tolerate the taint, or remove it from the node" in text


def an_allocator(*taints: tuple[Taint, ...]) -> FleetAllocator:
    found = FleetAllocator(a_fleet(*taints), Rules())
    found.set_ready()
    return found


def test_nobody_is_evicted_where_a_taint_keeps_the_request_off() -> None:
    allocator = an_allocator((TEAM_A,), ())
    for name in ("g0-0", "g0-1", "g1-0", "g1-1"):
        tolerant = NodeAffinity(tolerations=(Toleration("dedicated", "Exists"),))
        low = Request(f"low-{name}", asked(tolerant), Claim("team", priority=1 if name.startswith("g0") else 5))
        assert not isinstance(allocator.bind(low, (name,), 0.0), Refusal)
    high = Request("high", asked(), Claim("team", priority=9))
    found = allocator.preempt(high, 0.0)
    assert {victim.uid for victim in found.victims} <= {"low-g1-0", "low-g1-1"}
    assert found.choice.node == "n1"


@pytest.mark.parametrize("gpu", [0, 1])
def test_what_runs_keeps_its_place_when_its_node_is_tainted_and_after_a_restart(gpu: int) -> None:
    allocator = an_allocator((), ())
    cards = ("g0-0",) if gpu else ()
    held = Allocation("u", "n0", asked(gpu=gpu), cards, claim=Claim("team"))
    allocator.adopt(held)
    tainted = a_fleet((TEAM_A,), ()).nodes
    assert allocator.set_nodes(tainted) == ()
    assert allocator.fleet.ledger["u"].gpus == cards
    again = FleetAllocator(Fleet(tainted), Rules())
    assert again.adopt(held) == {}
    assert again.fleet.ledger["u"].node == "n0"
    assert int(again.fleet.cpu_free[0]) == 7000


def test_a_taint_that_is_added_and_removed_changes_the_answer() -> None:
    allocator = an_allocator(())
    request = Request("u", asked())
    assert isinstance(allocator.choose_on(request, "n0"), Choice)
    allocator.set_nodes(a_fleet((TEAM_A,)).nodes)
    assert isinstance(allocator.choose_on(request, "n0"), Refusal)
    allocator.set_nodes(a_fleet(()).nodes)
    assert isinstance(allocator.choose_on(request, "n0"), Choice)
