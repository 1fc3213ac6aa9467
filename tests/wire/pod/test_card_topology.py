"""Demands on the topology of cards in TensorFusion's annotations: satisfied, or refused by name."""

from __future__ import annotations

import pytest

from tests.wire.pod.test_bind_and_reconcile import pod
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidAnnotation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Topology, Zone
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
        ({"require_gpu_topology": "true", "gpu_topology_max_tier": "0"}, "gpu-topology-max-tier"),
        ({"require_gpu_topology": "true", "gpu_topology_max_tier": "2"}, "gpu-topology-max-tier"),
        ({"require_gpu_topology": "true", "gpu_topology_source": "vendor"}, "gpu-topology-source"),
        ({"gpu_topology_source": "magic"}, "gpu-topology-source"),
        ({"require_gpu_topology": "true", "numa_policy": "restricted"}, "numa-policy"),
    ],
)
def test_a_demand_that_cannot_be_satisfied_is_refused_by_name(keys, key):
    with pytest.raises(InvalidAnnotation, match=f"tensor-fusion.ai/{key}"):
        compose_request(demand(**keys), "tensor-fusion.ai")


def test_the_keys_are_known():
    names = ("require-gpu-topology", "gpu-topology-max-tier", "gpu-topology-source")
    assert not list(unknown_annotations(f"ullage.io/{name}" for name in names))
