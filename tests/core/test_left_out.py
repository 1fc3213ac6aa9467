"""Resources that an operator takes out of alignment, for all nodes or by a label of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.zones import GIB, kubelet, machine

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import reject
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.topology.rules import ZoneRules
from ullage.model.alignment import Alignment, ContainerNeeds
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.provider import SHIPPED, Provider, ProviderKind
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, CPU, MEMORY, Device, Room, ZonePolicy

pytestmark = pytest.mark.timeout(900)

NIC = "intel.com/sriov"
OUT = {
    MEMORY: Provider(MEMORY, ProviderKind.MEMORY, align=False),
    CPU: Provider(CPU, ProviderKind.CPU, align=False),
    CARD: Provider(CARD, ProviderKind.DEVICE, align=False),
    NIC: Provider("intel.com/*", ProviderKind.DEVICE, align=False),
    "pages": Provider("hugepages-2Mi", ProviderKind.HUGEPAGES, align=False),
}
LABELS = {
    MEMORY: "ullage.io/numa-align-memory",
    CPU: "ullage.io/numa-align-cpu",
    CARD: "ullage.io/numa-align-gpu",
    NIC: "ullage.io/numa-align-intel.com_sriov",
    "pages": "ullage.io/numa-align-hugepages",
}


def place(node: Node, entries: tuple[Provider, ...], needs: ContainerNeeds) -> Allocation | Code:
    fleet = Fleet([node], zone_rules=ZoneRules(providers=(*entries, *SHIPPED)))
    alignment = Alignment(ZonePolicy.SINGLE_ZONE, (needs,))
    asked = ResourceRequirement(max(1, needs.cpus) * 1000, 0, dict(needs.devices).get(CARD, 0), alignment=alignment)
    before = fleet.board.supplies.copy()
    found = Placer(fleet, Policy()).place("r", asked)
    if found is None:
        return reject(fleet, asked)[0].code
    fleet.release("r")
    assert (fleet.board.supplies == before).all()
    return found


def taken_out(node: Node, name: str, needs: ContainerNeeds, how: str) -> Allocation | Code:
    if how == "cluster":
        return place(node, (OUT[name],), needs)
    return place(replace(node, labels={LABELS[name]: "false"}), (), needs)


@pytest.mark.parametrize("how", ["cluster", "label"])
def test_memory_that_nobody_manages_does_not_send_cpus_to_its_zone(how):  # 47
    node = machine(cards=(), cpus=(4, 4), memory=(0, 16), kubelet=kubelet("single-numa-node", static_memory=True))
    needs = ContainerNeeds("main", cpus=2, memory_bytes=8 * GIB)
    assert place(node, (), needs).placement.zones == (1,)
    found = taken_out(node, MEMORY, needs, how)
    assert (found.placement.zones, found.placement.cpus, found.placement.memory) == ((0,), (0, 1), ())


@pytest.mark.parametrize("how", ["cluster", "label"])
@pytest.mark.parametrize("owner", [None, kubelet("single-numa-node")])
def test_cpus_that_are_left_out_are_nobody_s_own(how, owner):
    node = machine(cards=(0, 0, 1, 1), cpus=(2, 8), kubelet=owner)
    needs = ContainerNeeds("main", cpus=4, devices=((CARD, 2),))
    assert place(node, (), needs).placement.zones == (1,)
    found = taken_out(node, CPU, needs, how)
    assert (found.placement.zones, found.placement.cpus) == ((0,), ())


@pytest.mark.parametrize("how", ["cluster", "label"])
@pytest.mark.parametrize("owner", [None, kubelet("single-numa-node")])
def test_cards_that_are_left_out_lie_anywhere_and_are_held_all_the_same(how, owner):
    node = machine(cards=(0, 0, 1, 1), cpus=(2, 8), kubelet=owner)
    needs = ContainerNeeds("main", cpus=4, devices=((CARD, 3),))
    assert place(node, (), needs) is Code.NOT_ALIGNED
    found = taken_out(node, CARD, needs, how)
    assert (found.placement.zones, len(found.gpus)) == ((1,), 3)


@pytest.mark.parametrize("how", ["cluster", "label"])
def test_devices_that_are_left_out_are_handed_out_from_any_zone(how):
    node = machine(cards=(0, 0, 1, 1), kubelet=kubelet("single-numa-node"))
    adapters = tuple(Device(NIC, number, f"e{number}", zones=(1,)) for number in range(2))
    node = replace(node, topology=replace(node.topology, devices=adapters))
    needs = ContainerNeeds("main", devices=((CARD, 2), (NIC, 1)))
    assert place(node, (), needs).placement.zones == (1,)
    found = taken_out(node, NIC, needs, how)
    assert found.placement.zones == (0,)
    assert dict(found.placement.devices)[NIC] == ("e0",)
    assert taken_out(node, NIC, replace(needs, devices=((CARD, 2), (NIC, 3))), how) is Code.SHORT_ALLOCATION


@pytest.mark.parametrize("how", ["cluster", "label"])
def test_huge_pages_of_one_size_are_left_out(how):
    node = machine(cards=(0, 0, 1, 1), kubelet=kubelet("single-numa-node", static_memory=True))
    pages = [{2 << 20: Room(size, size), 1 << 30: Room(GIB, GIB)} for size in (0, GIB)]
    zones = tuple(replace(zone, hugepages=room) for zone, room in zip(node.topology.zones, pages, strict=True))
    node = replace(node, topology=replace(node.topology, zones=zones))
    needs = ContainerNeeds("main", devices=((CARD, 1),), hugepages=((2 << 20, GIB),))
    assert place(node, (), needs).placement.zones == (1,)
    found = taken_out(node, "pages", needs, how)
    assert (found.placement.zones, found.placement.amounts) == ((0,), ())


def test_the_first_entry_that_fits_counts_and_a_label_goes_before_all():
    node = machine(cards=(), cpus=(4, 4), memory=(0, 16), kubelet=kubelet("single-numa-node", static_memory=True))
    needs = ContainerNeeds("main", cpus=2, memory_bytes=8 * GIB)
    back = Provider(MEMORY, ProviderKind.MEMORY, align=True)
    assert place(node, (back, OUT[MEMORY]), needs).placement.zones == (1,)
    assert place(node, (OUT[MEMORY], back), needs).placement.zones == (0,)
    put_back = replace(node, labels={LABELS[MEMORY]: "true"})
    assert place(put_back, (OUT[MEMORY],), needs).placement.zones == (1,)


def test_only_cards_of_the_vendor_that_is_named_are_left_out():
    node = machine(cards=(0, 0, 1, 1))
    gpus = tuple(replace(gpu, vendor="NVIDIA" if gpu.index % 2 else "AMD") for gpu in node.gpus)
    entry = Provider("nvidia.com/gpu", ProviderKind.DEVICE, align=False, vendors=frozenset({"NVIDIA"}))
    fleet = Fleet([replace(node, gpus=gpus)], zone_rules=ZoneRules(providers=(entry, *SHIPPED)))
    assert [fleet.board.mask_of(0, gpu) for gpu in fleet.cards] == [1, 0, 2, 0]
