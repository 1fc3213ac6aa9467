"""Pods of HAMi placed by the allocator: two nodes with two cards each, one of which is in use."""

import pytest

from tests.wire.hami.pods import MIB, limits, pod
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.request import read_hami

pytestmark = pytest.mark.timeout(900)

SMALL = limits(gpu=1, mem=1000, cores=20)


def used(gpu, node, mib, percent):
    part = Part(vram_bytes=mib * MIB, compute_ppm=percent * PPM // 100)
    asked = ResourceRequirement(0, 0, 1, part, CardSelector(isolation=Isolation.SOFT))
    charge = Charge(percent * PPM // 100, mib * MIB, Isolation.SOFT)
    return Allocation(f"on-{gpu}", node, asked, (gpu,), AllocationState.BOUND, (charge,))


@pytest.fixture
def cluster():
    nodes = [
        Node(name, 8000, 2**36, tuple(Gpu(gpu, n, "A100", "NVIDIA", 8000 * MIB) for n, gpu in enumerate(gpus)))
        for name, gpus in (("node1", ("d1", "d2")), ("node2", ("d3", "d4")))
    ]
    allocator = FleetAllocator(Fleet(nodes, [used("d1", "node1", 2000, 25), used("d4", "node2", 6000, 75)]))
    allocator.set_ready()
    return allocator


def placed(cluster, *containers, init=(), **policies):
    annotations = {f"hami.io/{name.replace('_', '-')}": value for name, value in policies.items()}
    found = cluster.alloc(read_hami(pod(*containers, init=init, annotations=annotations)).request, 1.0)
    return None if isinstance(found, Refusal) else (found.node, *found.gpus)


@pytest.mark.parametrize(
    ("node", "card", "expected"),
    [
        ("binpack", "binpack", ("node2", "d4")),
        ("spread", "spread", ("node1", "d2")),
        ("binpack", "spread", ("node2", "d3")),
        ("spread", "binpack", ("node1", "d1")),
    ],
)
def test_policies_of_nodes_and_cards(cluster, node, card, expected):
    assert placed(cluster, SMALL, node_scheduler_policy=node, gpu_scheduler_policy=card) == expected


def test_an_init_container_larger_than_any_card_fits_nowhere(cluster):
    assert placed(cluster, SMALL, init=[limits(gpu=1, mem=9000)]) is None


def test_two_containers_have_different_cards(cluster):
    found = placed(cluster, SMALL, SMALL, gpu_scheduler_policy="spread")
    assert len({*found[1:]}) == 2


def test_the_rest_of_a_card_suffices(cluster):
    assert set(placed(cluster, limits(gpu=2, mem=2000, cores=25))) == {"node2", "d3", "d4"}


def test_mutex_takes_idle_cards_only(cluster):
    assert placed(cluster, limits(gpu=2, mem=1), gpu_scheduler_policy="mutex") is None
    assert (
        placed(cluster, limits(gpu=1, mem=1), gpu_scheduler_policy="mutex", node_scheduler_policy="spread")[1] == "d2"
    )


def test_a_card_without_amounts_is_held_whole(cluster):
    _, taken = placed(cluster, limits(gpu=1))
    assert taken in ("d2", "d3")
    document = pod(SMALL, annotations={"nvidia.com/use-gpuuuid": taken})
    document["metadata"]["uid"] = "u-2"
    again = read_hami(document).request
    assert isinstance(cluster.check_quota_and_filter(again), Refusal)
