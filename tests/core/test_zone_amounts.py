"""Machines of which only amounts per zone are known are aligned by them, and what is placed there counts by zone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.zones import kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Room
from ullage.model.zone_placement import Rank, ZonePlacement

pytestmark = pytest.mark.timeout(900)


def counted(node: Node) -> Node:
    """The same machine as one is known that tells amounts alone."""
    topology = node.topology
    cards = Counter(zone for card in node.gpus for zone in card.zones)
    cpus = Counter(cpu.zone for cpu in topology.cpus)
    free = Counter(cpu.zone for cpu in topology.cpus if cpu.id not in topology.reserved_cpus)
    zones = tuple(
        replace(
            zone,
            amounts={
                "cpu": Room(cpus[zone.id], free[zone.id]),
                "gpu": Room(cards[zone.id], cards[zone.id]),
            },
        )
        for zone in topology.zones
    )
    gpus = tuple(replace(card, zones=()) for card in node.gpus)
    return replace(node, gpus=gpus, topology=replace(topology, zones=zones, cpus=(), reserved_cpus=frozenset()))


def books(node: Node) -> FleetAllocator:
    found = FleetAllocator(Fleet([node]))
    found.set_ready()
    return found


def ask(uid: str, text: str, *containers: ContainerNeeds) -> Request:
    return Request(uid, replace(ResourceRequirement.from_string(text), alignment=Alignment(None, containers)))


def by_zone(node: Node, held: Allocation) -> Counter:
    """What an allocation has, by zone and resource."""
    homes = {cpu.id: cpu.zone for cpu in node.topology.cpus}
    zones = {card.uuid: card.zones for card in node.gpus}
    found = Counter((homes[cpu], "cpu") for cpu in held.placement.cpus)
    found += Counter((zone, "gpu") for uuid in held.gpus for zone in zones[uuid])
    for zone, resource, amount in held.placement.amounts:
        found[zone, resource] += amount
    return found


ONE_ZONE = kubelet("single-numa-node")
POD_SCOPE = kubelet("single-numa-node", scope="pod")
M = machine(kubelet=kubelet("restricted"))


@pytest.mark.parametrize(
    ("text", "zones"),
    [
        pytest.param("gpu=2,cpu=8", (0,), id="17"),
        pytest.param("gpu=6,cpu=10", None, id="18"),
        pytest.param("gpu=6,cpu=24", (0, 1), id="19"),
        pytest.param("gpu=8,cpu=32", (0, 1), id="20"),
        pytest.param("gpu=4,cpu=8", (0,), id="21, nothing taken"),
        pytest.param("gpu=1,cpu=17", None, id="more CPUs than a zone has"),
    ],
)
def test_the_cases_of_a_machine_hold_without_ids(text, zones):
    found = books(counted(M))
    placed = found.alloc(ask("a", text), 0.0)
    if zones is None:
        assert isinstance(placed, Refusal)
        assert placed.code is Code.NOT_ALIGNED
        return
    assert placed.placement.zones == zones
    asked = placed.requirement
    assert sum(n for _, name, n in placed.placement.amounts if name == "cpu") == asked.cpu
    assert sum(n for _, name, n in placed.placement.amounts if name == "gpu") == asked.gpu_count
    assert (placed.placement.cpus, len(placed.gpus)) == ((), asked.gpu_count)


def test_goes_where_the_cpus_are():
    found = books(counted(M))
    found.alloc(ask("first", "gpu=1,cpu=12"), 0.0)
    placed = found.alloc(ask("a", "gpu=4,cpu=8"), 0.0)
    assert placed.placement.zones == (1,)
    assert placed.placement.amounts == ((1, "cpu", 8), (1, "gpu", 4))


def test_a_refusal_tells_what_is_free_in_each_zone():
    found = books(counted(machine(kubelet=ONE_ZONE)))
    found.alloc(ask("a", "gpu=3,cpu=4"), 0.0)
    found.alloc(ask("b", "gpu=3,cpu=4"), 0.0)
    refused = found.alloc(ask("c", "gpu=2,cpu=2"), 0.0)
    assert isinstance(refused, Refusal)
    rooms = [room for rejection in refused.rejections for room in rejection.zones]
    assert {(room.zone, room.free, room.total) for room in rooms if room.resource == "gpu"} == {(0, 1, 4), (1, 1, 4)}


def test_what_another_scheduler_decided_counts_by_zone():
    """`topology-decision` has amounts; the pod has cards of which nobody knows the zone."""
    node = counted(machine(kubelet=ONE_ZONE))
    found = books(node)
    asked = ResourceRequirement.from_string("gpu=3,cpu=14")
    placement = ZonePlacement((0,), rank=Rank.BOUND, amounts=((0, "cpu", 14), (0, "gpu", 3)))
    held = Allocation(
        "a", "n", asked, ("n-g5", "n-g6", "n-g7"), AllocationState.BOUND, (), Claim(), 0.0, 0.0, placement=placement
    )
    found.reconcile([held], 0.0)
    assert found.alloc(ask("b", "gpu=2,cpu=2"), 0.0).placement.zones == (1,)
    assert found.alloc(ask("c", "gpu=1,cpu=2"), 0.0).placement.zones == (0,)
    assert found.alloc(ask("d", "gpu=1,cpu=1"), 0.0).placement.zones == (1,)
    found.dealloc("a", 1.0)
    assert found.alloc(ask("e", "gpu=3,cpu=14"), 0.0).placement.zones == (0,)


def test_ids_that_the_node_shows_leave_the_zones_as_they_were_decided():
    found = books(counted(machine(kubelet=ONE_ZONE)))
    before = found.alloc(ask("a", "gpu=3,cpu=4"), 0.0)
    free = found.fleet.board.supplies.copy()
    holding = Holding("main", (20, 21, 22, 23), (("gpu", before.gpus),))
    found.observe("n", Use((PodHolding(uid="a", containers=(holding,)),)), 1.0)
    held = found.fleet.ledger["a"]
    assert held.observed
    assert (held.placement.amounts, held.placement.zones) == (before.placement.amounts, (0,))
    assert (found.fleet.board.supplies == free).all()


def test_an_init_container_and_the_one_after_it_use_the_same_room():
    node = counted(machine(kubelet=ONE_ZONE))
    init = ContainerNeeds("init", AlignmentStage.INIT, cpus=8, devices=(("gpu", 4),))
    app = ContainerNeeds("app", AlignmentStage.APP, cpus=8, devices=(("gpu", 4),))
    found = books(node)
    placed = found.alloc(ask("a", "gpu=4,cpu=8", init, app), 0.0)
    assert placed.placement.amounts == ((0, "cpu", 8), (0, "gpu", 4))


REQUESTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["gpu=1,cpu=2", "gpu=2,cpu=3", "gpu=3", "gpu=4,cpu=1", ""])),
    min_size=1,
    max_size=14,
)


@pytest.mark.long
@settings(max_examples=60)
@given(
    steps=REQUESTS,
    layout=st.sampled_from(
        [
            machine(kubelet=ONE_ZONE, cpus=(6, 6), reserved=(0,)),
            machine(kubelet=ONE_ZONE, cards=(0, 1, 1, 1), cpus=(1, 6)),
            machine(
                kubelet=kubelet("single-numa-node", scope="pod"),
                cards=(0, 0, 1, 1, 2, 2),
                cpus=(4, 4, 4),
                zones=(0, 1, 5),
            ),
        ]
    ),
)
def test_amounts_decide_as_ids_do(steps, layout):
    """One zone is all that a pod may have, so that it does not matter which cards of it these are."""
    both = books(layout), books(counted(layout))
    for uid, text in steps:
        if not text:
            for found in both:
                found.dealloc(uid, 1.0)
            continue
        known = uid in both[0].fleet.ledger
        placed = [found.alloc(ask(uid, text), 0.0) for found in both]
        assert isinstance(placed[0], Refusal) == isinstance(placed[1], Refusal)
        if isinstance(placed[0], Allocation):
            assert known or placed[0].placement.zones == placed[1].placement.zones
            assert by_zone(layout, placed[0]) == by_zone(counted(layout), placed[1])
    fleet = both[1].fleet
    rebuilt = Fleet(fleet.nodes, fleet.ledger.values())
    assert np.array_equal(fleet.board.supplies, rebuilt.board.supplies)
    assert (fleet.card_users == rebuilt.card_users).all()
