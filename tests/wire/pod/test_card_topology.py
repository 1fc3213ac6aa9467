"""Demands on the topology of cards in TensorFusion's annotations: satisfied, or refused by name."""

from __future__ import annotations

import pytest

from tests.wire.pod.test_bind_and_reconcile import pod
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.verdict.sentences import reject_text
from ullage.model.alignment import LinkDemand
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import InvalidAnnotation
from ullage.model.gpu import Gpu
from ullage.model.links import links_by_group
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CardPicker, Kubelet, Path, Topology, Zone, ZonePolicy
from ullage.wire.dialect import PodReader
from ullage.wire.pod import compose_request
from ullage.wire.unknown_keys import unknown_annotations

GIB = 2**30


def allocator(*zones: tuple[int, ...]) -> FleetAllocator:
    cards = tuple(Gpu(f"g{n}", n, vram_bytes=40 * GIB, zones=near) for n, near in enumerate(zones))
    machine = Topology((Zone(0), Zone(1)))
    found = FleetAllocator(Fleet([Node("n", 16_000, 2**36, cards, topology=machine)]))
    found.set_ready()
    return found


def demand(count: int = 2, **keys: str) -> dict[str, object]:
    return pod("tensor-fusion.ai", gpu_count=str(count), vram_request="1Gi", **keys)


def place(books: FleetAllocator, document: dict[str, object]) -> Allocation | Refusal:
    return books.alloc(compose_request(document, "tensor-fusion.ai").request, 0.0)


@pytest.mark.parametrize("more", [{}, {"gpu_topology_max_tier": "1"}, {"gpu_topology_source": "numa"}])
def test_cards_that_must_share_a_numa_node_are_aligned_to_one(more):
    document = demand(require_gpu_topology="true", **more)
    together = place(allocator((0,), (1,), (1,)), document)
    assert isinstance(together, Allocation)
    assert set(together.gpus) == {"g1", "g2"}
    assert isinstance(place(allocator((0,), (1,)), document), Refusal)


@pytest.mark.parametrize("keys", [{}, {"require_gpu_topology": "false", "gpu_topology_max_tier": "0"}])
def test_preferences_refuse_no_pod(keys):
    assert isinstance(place(allocator((0,), (1,)), demand(**keys)), Allocation)


def test_the_tier_any_demands_nothing():
    document = demand(require_gpu_topology="true", gpu_topology_max_tier="3")
    assert isinstance(place(allocator((0,), (1,)), document), Allocation)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"require_gpu_topology": "yes"}, "require-gpu-topology"),
        ({"gpu_topology_max_tier": "x"}, "gpu-topology-max-tier"),
        ({"gpu_topology_max_tier": "4"}, "gpu-topology-max-tier"),
        (
            {"require_gpu_topology": "true", "gpu_topology_max_tier": "0", "gpu_topology_source": "numa"},
            "gpu-topology-source",
        ),
        (
            {"require_gpu_topology": "true", "gpu_topology_max_tier": "1", "gpu_topology_source": "vendor"},
            "gpu-topology-source",
        ),
        ({"require_gpu_topology": "true", "gpu_topology_max_tier": "0", "numa_policy": "restricted"}, "numa-policy"),
        ({"require_gpu_topology": "true", "gpu_topology_max_tier": "2"}, "gpu-topology-max-tier"),
        ({"require_gpu_topology": "true", "gpu_topology_source": "vendor"}, "gpu-topology-source"),
        ({"gpu_topology_source": "magic"}, "gpu-topology-source"),
        ({"require_gpu_topology": "true", "numa_policy": "restricted"}, "numa-policy"),
    ],
)
def test_a_demand_that_cannot_be_satisfied_is_refused_by_name(keys, key):
    with pytest.raises(InvalidAnnotation, match=f"tensor-fusion.ai/{key}"):
        compose_request(demand(**keys), "tensor-fusion.ai")


ISLANDS = ("g0-g1", "g2-g3-g4")


def linked(*taken: str, kubelet: Kubelet | None = None) -> FleetAllocator:
    """Five cards in two islands, in two zones each; those named are in use."""
    cards = tuple(Gpu(f"g{n}", n, None, "NVIDIA", 40 * GIB, zones=(n % 2,)) for n in range(5))
    links = links_by_group((island.split("-") for island in ISLANDS), Path.UNKNOWN, 2)
    machine = Topology((Zone(0), Zone(1)), links=links, kubelet=kubelet)
    found = FleetAllocator(Fleet([Node("n", 16_000, 2**36, cards, topology=machine)]))
    found.set_ready()
    for uuid in taken:
        asked = ResourceRequirement.from_string(f"gpu=1,gpu_uuid={uuid}")
        assert isinstance(found.alloc(Request(uuid, asked), 0.0), Allocation)
    return found


@pytest.mark.parametrize("source", [{}, {"gpu_topology_source": "auto"}, {"gpu_topology_source": "vendor"}])
def test_cards_that_must_share_an_interconnect_are_of_one_island(source):
    tier = {"require_gpu_topology": "true", "gpu_topology_max_tier": "0"} | source
    assert set(place(linked(), demand(2, **tier)).gpus) == {"g0", "g1"}
    assert set(place(linked("g1"), demand(2, **tier)).gpus) <= {"g2", "g3", "g4"}
    assert set(place(linked("g0"), demand(3, **tier)).gpus) == {"g2", "g3", "g4"}
    refused = place(linked("g0", "g3"), demand(3, **tier)).rejections[0]
    assert (refused.code, refused.cure, refused.needed, refused.had) == (Code.NOT_LINKED, Cure.CAPACITY, 3, 2)
    text = "it needs 3 cards of one island, n has 2"
    assert (
        reject_text(refused)
        == f"its cards would not be joined by fast links, or nothing is known of their links: {text}"
    )
    never = place(linked(), demand(4, **tier)).rejections[0]
    assert (never.code, never.cure, never.had) == (Code.NOT_LINKED, Cure.NODE_CHANGE, 3)


def test_one_card_needs_no_link_but_its_node_must_be_known():
    tier = {"require_gpu_topology": "true", "gpu_topology_max_tier": "0"}
    assert isinstance(place(linked("g0"), demand(1, **tier)), Allocation)
    unknown = FleetAllocator(Fleet([Node("n", 16_000, 2**36, (Gpu("g0", 0, vram_bytes=GIB), Gpu("g1", 1)))]))
    unknown.set_ready()
    refused = place(unknown, demand(1, **tier)).rejections[0]
    assert (refused.code, refused.cure, refused.had) == (Code.NOT_LINKED, Cure.NODE_CHANGE, 0)


def test_where_a_plugin_picks_all_cards_must_be_of_one_island():
    tier = {"require_gpu_topology": "true", "gpu_topology_max_tier": "0"}
    plain, named = Kubelet(picks=CardPicker.PARTITION), Kubelet(picks=CardPicker.NAMED)
    refused = place(linked(kubelet=plain), demand(2, **tier)).rejections[0]
    assert (refused.code, refused.had) == (Code.NOT_LINKED, 3)
    assert reject_text(refused).endswith("n has 3, and its device plugin chooses by itself")
    assert set(place(linked("g0", "g1", kubelet=plain), demand(2, **tier)).gpus) <= {"g2", "g3", "g4"}
    assert set(place(linked(kubelet=named), demand(2, **tier)).gpus) == {"g0", "g1"}


def test_links_may_be_asked_for_in_words_of_ullage():
    assert set(place(linked("g0"), demand(2, gpu_links="island")).gpus) <= {"g2", "g3", "g4"}
    assert isinstance(place(linked("g0", "g2"), demand(3, gpu_links="island")), Refusal)
    assert place(linked(), demand(1, gpu_links="best")).gpus in (("g0",), ("g1",))
    assert set(place(linked(), demand(3, gpu_links="best")).gpus) == {"g2", "g3", "g4"}
    assert isinstance(place(linked("g0", "g2"), demand(3, gpu_links="best")), Allocation)
    tier = {"require_gpu_topology": "true", "gpu_topology_max_tier": "0"}
    assert isinstance(place(linked("g0", "g2"), demand(3, gpu_links="island", **tier)), Refusal)
    for keys in (tier | {"gpu_links": "best"}, {"gpu_links": "fast"}):
        with pytest.raises(InvalidAnnotation, match=r"tensor-fusion\.ai/gpu-links"):
            compose_request(demand(2, **keys), "tensor-fusion.ai")
    one_zone = compose_request(demand(2, require_gpu_topology="true", gpu_links="best"), "tensor-fusion.ai")
    alignment = one_zone.request.requirement.alignment
    assert (alignment.policy, alignment.links) == (ZonePolicy.SINGLE_ZONE, LinkDemand.BEST)


def test_the_cards_of_all_containers_are_of_one_island():
    """One after the other, the first container would take the smaller island, which is too small for both."""
    limits = [{"name": f"c{at}", "resources": {"limits": {"nvidia.com/gpu": count}}} for at, count in enumerate((2, 1))]
    asked = {"metadata": {"name": "p", "uid": "u", "annotations": {"ullage.io/gpu-links": "island"}}}
    found = PodReader()(asked | {"spec": {"containers": limits}})
    assert set(linked().alloc(found.request, 0.0).gpus) == {"g2", "g3", "g4"}


def test_the_keys_are_known():
    names = ("gpu-links", "require-gpu-topology", "gpu-topology-max-tier", "gpu-topology-source")
    assert not list(unknown_annotations(f"ullage.io/{name}" for name in names))
