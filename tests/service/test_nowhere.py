"""Requests that fit nowhere: a refusal names its true cause, what there is, what was looked at, what would fit."""

from dataclasses import replace

import pytest
from tests.core.zones import kubelet, machine

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import smaller_requests
from ullage.core.explaining.nowhere import nowhere
from ullage.core.placing.offers import NodeRefusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import ANY_CARD, CardSelector, Isolation, Part
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster

GIB = 2**30


def a_card(name, **facts):
    return Gpu(name, facts.pop("index", 0), **({"vram_bytes": 80 * GIB, "vendor": "NVIDIA", "model": "A100"} | facts))


def a_node(name="n", cards=8, *, node=None, **facts):
    gpus = tuple(a_card(f"{name}-{index}", **facts) for index in range(cards))
    return Node(name, 64_000, 256 * GIB, gpus, **(node or {}))


def part_of(card, gib):
    asked = ResourceRequirement(0, 0, 1, Part(vram_bytes=gib * GIB), CardSelector(isolation=Isolation.SOFT))
    charge = Charge(0, gib * GIB, Isolation.SOFT)
    return Allocation(f"on-{card}", card.partition("-")[0], asked, (card,), AllocationState.BOUND, (charge,))


def whole(card):
    asked = ResourceRequirement(0, 0, 1, None, ANY_CARD)
    return Allocation(f"on-{card}", card.partition("-")[0], asked, (card,), AllocationState.BOUND)


def on_zone(card):
    uuid = machine().gpus[card].uuid
    return Allocation(f"on-{uuid}", "n", ResourceRequirement(0, 0, 1, None, ANY_CARD), (uuid,))


def explained(asked, nodes, held=(), rules=None, offered=None):
    cluster = Cluster(rules or Rules(), lambda: 0.0)
    cluster.set_nodes(nodes)
    cluster.recover(held)
    names = offered or [node.name for node in nodes]
    request = Request("u", ResourceRequirement.from_string(asked), claim=Claim("team"))
    found = cluster.offers(request, names, expected=False)
    assert found.names == [], "the request must fit nowhere"
    return cluster.nowhere([(request, names)], found)


SOFT = "cpu=0,mem=0,gpu=1,vram=20g"
TWO = [a_node("a"), a_node("b")]
OTHERS = [a_card("a-1", index=1), a_card("a-2", index=2)]
CASES = {
    "more than any card has": (
        ("cpu=0,mem=0,gpu=1,vram=100g", TWO),
        (
            "asks for 100Gi on one card; the largest has 80Gi (all 16 cards of 2 nodes looked at); "
            "80Gi on one card would fit on 2 nodes now"
        ),
    ),
    "more than any card has free": (
        (SOFT, [a_node("a", 2)], (part_of("a-0", 70), part_of("a-1", 64))),
        (
            "asks for 20Gi on one card; the most that is free of one is 16Gi (all 2 cards of 1 node looked at); "
            "16Gi on one card would fit on 1 node now"
        ),
    ),
    "more compute than any card has": (
        ("cpu=0,mem=0,gpu=1,vram=1g,tflops=400", [a_node(compute_gflops=312_000)]),
        (
            "asks for 1Gi and 400 TFLOPS on one card; the largest has 312 TFLOPS (all 8 cards of 1 node looked at); "
            "1Gi and 312 TFLOPS on one card would fit on 1 node now"
        ),
    ),
    "more cards than a node has": (
        ("cpu=0,mem=0,gpu=9", TWO),
        (
            "asks for 9 whole cards; the largest node has 8 cards (all 16 cards of 2 nodes looked at); "
            "8 whole cards would fit on 2 nodes now"
        ),
    ),
    "more cards than are idle": (
        ("cpu=0,mem=0,gpu=2", [a_node("a", 2), a_node("b", 2)], (whole("a-0"), part_of("b-1", 1))),
        (
            "asks for 2 whole cards; the best node has 1 such card free (all 4 cards of 2 nodes looked at); "
            "1 whole card would fit on 2 nodes now"
        ),
    ),
    "no idle card": (
        ("cpu=0,mem=0,gpu=1", [a_node("a", 1)], (part_of("a-0", 1),)),
        (
            "asks for 1 whole card; the best node has 0 such cards free (1 card of 1 node looked at); wait until "
            "others end"
        ),
    ),
    "parts of several cards": (
        ("cpu=0,mem=0,gpu=2,vram=20g", [a_node("a", 2)], (part_of("a-0", 70),)),
        (
            "asks for 20Gi on each of 2 cards; the best node has 1 such card free (all 2 cards of 1 node looked at); "
            "20Gi on one card would fit on 1 node now"
        ),
    ),
    "another model": (
        (f"{SOFT},gpu_model=H100", TWO),
        (
            "asks for 20Gi on one card, gpu_model=H100; the card is of another model: there are A100 "
            "(all 16 cards of 2 nodes looked at); 20Gi on one card would fit on 2 nodes now"
        ),
    ),
    "another vendor": (
        (f"{SOFT},gpu_vendor=AMD", TWO),
        (
            "asks for 20Gi on one card, gpu_vendor=AMD; the card is of another vendor: there are NVIDIA "
            "(all 16 cards of 2 nodes looked at); 20Gi on one card would fit on 2 nodes now"
        ),
    ),
    "another card is named": (
        (f"{SOFT},gpu_uuid=GPU-9", TWO),
        (
            "asks for 20Gi on one card, gpu_uuid=GPU-9; other cards are named by their uuids, or this one is excluded: "
            "there are a-0, a-1, a-2, a-3, a-4 (all 16 cards of 2 nodes looked at); "
            "20Gi on one card would fit on 2 nodes now"
        ),
    ),
    "another index is named": (
        (f"{SOFT},gpu_index=7", TWO),
        (
            "asks for 20Gi on one card, gpu_index=7; another card is named: there are 0 "
            "(all 16 cards of 2 nodes looked at); 20Gi on one card would fit on 2 nodes now"
        ),
    ),
    "another index is named, and the card that has it is broken": (
        (f"{SOFT},gpu_index=0", [Node("a", 64_000, 0, (a_card("a-0", healthy=False), *OTHERS))]),
        (
            "asks for 20Gi on one card, gpu_index=0; another card is named: there are 1, 2 (all 3 cards of 1 node"
            " looked at); 20Gi on one card would fit on 1 node now; 1 card: the card is not healthy, or was not "
            "seen any more"
        ),
    ),
    "unhealthy, and nodes without cards": (
        (SOFT, [a_node("a", 1, healthy=False), a_node("b", 0), a_node("c", 0)]),
        (
            "asks for 20Gi on one card; the card is not healthy, or was not seen any more (1 card of 3 nodes "
            "looked at); repair the card, or add cards; 2 nodes: no cards"
        ),
    ),
    "unhealthy": (
        (SOFT, [a_node(healthy=False)]),
        (
            "asks for 20Gi on one card; the card is not healthy, or was not seen any more (all 8 cards of 1 node "
            "looked at); repair the card, or add cards"
        ),
    ),
    "cordoned cards": (
        (SOFT, [a_node(cordoned=True)]),
        (
            "asks for 20Gi on one card; the card is cordoned: an operator keeps new work off it (all 8 cards of 1"
            " node looked at); uncordon the card, or add cards"
        ),
    ),
    "capacity that is not known": (
        (SOFT, [a_node(vram_bytes=None)]),
        (
            "asks for 20Gi on one card; the capacity of the card is not known; declare it (card_model in a cluster, "
            "else node.card), or ask for a fraction: gpu=0.5, or nvidia.com/gpumem-percentage in a pod "
            "(all 8 cards of 1 node looked at)"
        ),
    ),
    "too many users": (
        (SOFT, [a_node("a", 1, max_users=1)], (part_of("a-0", 1),)),
        (
            "asks for 20Gi on one card; the card has as many users as it may have (1 card of 1 node looked at); "
            "wait until others end"
        ),
    ),
    "a card that is held whole": (
        (SOFT, [a_node("a", 1)], (whole("a-0"),)),
        (
            "asks for 20Gi on one card; the most that is free of one is 0 (1 card of 1 node looked at); wait "
            "until others end"
        ),
    ),
    "no slices": (
        ("cpu=0,mem=0,gpu=1,vram=1g,isolation=partitioned", TWO),
        (
            "asks for 1Gi on one card, isolation=partitioned; no partition of the card's model covers the request"
            " (all 16 cards of 2 nodes looked at); ask for a slice that a model has"
        ),
    ),
    "cpu": (
        ("cpu=100,mem=0,gpu=1,vram=1g", TWO),
        (
            "asks for 1Gi on one card, cpu=100; the best node has 64 cpu (all 16 cards of 2 nodes looked at); "
            "1Gi on one card, cpu=64 would fit on 2 nodes now"
        ),
    ),
    "memory": (
        ("cpu=0,mem=300g,gpu=1,vram=1g", TWO),
        (
            "asks for 1Gi on one card, mem=300Gi; the best node has 256Gi memory (all 16 cards of 2 nodes looked at); "
            "1Gi on one card, mem=256Gi would fit on 2 nodes now"
        ),
    ),
    "nodes without cards": (
        (SOFT, [a_node("a", 0)]),
        "asks for 20Gi on one card; no node has cards (1 node looked at); add nodes with such cards",
    ),
    "nodes that are not known": (
        (SOFT, TWO, (), None, ["x", "y"]),
        (
            "asks for 20Gi on one card; the card's node is not known (2 nodes looked at); wait until the node "
            "reports its cards"
        ),
    ),
    "too few cards in one zone": (
        ("cpu=0,mem=0,gpu=4,numa=single-numa-node", [machine()], (on_zone(0), on_zone(4))),
        (
            "asks for 4 whole cards, numa=single-numa-node; what it needs does not lie in the same zones: it "
            "needs 4 cards; n has 3 of 4 free on zone 0, 3 of 4 on zone 1 (width rule current-best) (all 8 cards "
            "of 1 node looked at); 4 whole cards, numa=restricted would fit on 1 node now; 2 cards: the card is "
            "in use and is asked for whole"
        ),
    ),
    "too few CPUs for so many cards": (
        ("cpu=10,mem=0,gpu=6", [machine(kubelet=kubelet("restricted"))]),
        (
            "asks for 6 whole cards, cpu=10; what it needs does not lie in the same zones: it needs 6 cards; "
            "n has 4 of 4 free on zone 0, 4 of 4 on zone 1 (width rule kubelet) (all 8 cards of 1 node looked at); "
            "6 whole cards, cpu=17 would fit on 1 node now"
        ),
    ),
    "no zone with so many CPUs": (
        ("cpu=5,mem=0,gpu=1,numa=single-numa-node", [machine(cpus=(4, 4))]),
        (
            "asks for 1 whole card, cpu=5, numa=single-numa-node; what it needs does not lie in the same zones: "
            "it needs 5 CPUs; n has 4 of 4 free on zone 0, 4 of 4 on zone 1 (width rule current-best) "
            "(all 8 cards of 1 node looked at); 1 whole card, cpu=5.5, numa=single-numa-node would fit on 1 node now"
        ),
    ),
    "a quota": (
        (
            SOFT,
            TWO,
            (),
            Rules(quotas=Quotas({"team": Quota(total_requests=Caps(vram_bytes=10 * GIB))})),
        ),
        (
            "asks for 20Gi on one card; the vram that its namespace requests would exceed the quota: it asks "
            "20Gi, 0 of 10Gi used (namespace team) (all 16 cards of 2 nodes looked at); ask for less, or have the"
            " quota of the namespace raised: waiting does not help"
        ),
    ),
    "several causes, the closest first": (
        (
            SOFT,
            [a_node("a", 2), a_node("b", 3, model="L4", vram_bytes=16 * GIB), a_node("c", 1, healthy=False)],
            (part_of("a-0", 70), part_of("a-1", 79)),
        ),
        (
            "asks for 20Gi on one card; the most that is free of one is 10Gi (all 6 cards of 3 nodes looked at); "
            "16Gi on one card would fit on 1 node now; 3 cards: too small when empty, the largest has 16Gi; 1 "
            "card: the card is not healthy, or was not seen any more"
        ),
    ),
}


@pytest.mark.parametrize(("case", "sentence"), CASES.values(), ids=CASES)
def test_a_request_that_fits_nowhere_gets_the_true_cause(case, sentence):
    assert explained(*case) == sentence


def test_the_refusal_of_a_request_over_thousands_of_cards_is_one_sentence():
    nodes = [a_node(f"n{number}") for number in range(1000)]
    held = [part_of(f"n{number}-{index}", 1) for number in range(212, 1000) for index in range(8)]
    assert explained("cpu=0,mem=0,gpu=1,vram=100g", nodes, held) == (
        "asks for 100Gi on one card; the largest has 80Gi (all 8,000 cards of 1,000 nodes looked at); "
        "80Gi on one card would fit on 212 nodes now"
    )


def test_a_suggested_request_fits_where_it_is_said_to_fit():
    cluster = Cluster(Rules(), lambda: 0.0)
    cluster.set_nodes(TWO)
    cluster.recover((part_of("a-0", 70),))
    smaller = Request("u", ResourceRequirement.from_string("cpu=0,mem=0,gpu=1,vram=80g"))
    assert cluster.offers(smaller, ["a", "b"], expected=False).names == ["a", "b"]


def test_a_smaller_request_keeps_the_terms():
    """A smaller request does not forget which nodes will do, nor the policy of zones."""
    terms = NodeAffinity(required=((Expression("zone", Operator.IN, ("east",)),),))
    asked = replace(ResourceRequirement.from_string("gpu=3,numa=restricted"), nodes=terms)
    fleet = Fleet([a_node("a", 2, node={"labels": {"zone": "east"}})])
    (smaller,) = smaller_requests(fleet, asked, [0])
    assert smaller == replace(asked, gpu_count=2)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_nodes_of_different_sizes_that_refuse_alike_count_with_their_own_cards(names):
    fleet = Fleet([a_node("a", 1), a_node("b", 8)])
    request = Request("u", ResourceRequirement.from_string("gpu=9"), claim=Claim("team"))
    found = nowhere(fleet, Rules(), request, [(NodeRefusal.of(Code.NOMINATED, Cure.CAPACITY), names)])
    assert (found.nodes, found.cards, found.most) == (2, 9, 8)
