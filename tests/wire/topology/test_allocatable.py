"""What a kubelet says that pods may have completes the record of its machine."""

from dataclasses import replace

from ullage.model.gpu import Gpu
from ullage.model.holding import MemoryHolding
from ullage.model.topology import Cpu, Device, Room, Topology, Zone
from ullage.wire.topology.allocatable import with_allocatable
from ullage.wire.topology.podresources import Allocatable

CPUS = tuple(Cpu(number, number // 2, number // 2, number) for number in range(4))
ZONES = tuple(Zone(id_, Room(100, 90), {2**21: Room(50, 50)}) for id_ in (0, 1))
NIC = Device("a/nic", 0, "0000:19:00.0", bus_id="0000:19:00.0")
MACHINE = Topology(ZONES, (), CPUS, (NIC,), reserved_count=1)
CARDS = Gpu("n1/pci-1", 0, bus_id="0000:1b:00.0"), Gpu("n1/pci-2", 1, zones=(1,)), Gpu("n1/pci-3", 2)


def completed(card_resource="amd.com/gpu", **said):
    return with_allocatable(MACHINE, CARDS, card_resource, Allocatable(**said))


def test_a_kubelet_that_says_nothing_changes_nothing():
    assert completed() == (MACHINE, CARDS)


def test_cpus_that_pods_may_not_have_are_reserved_by_id():
    topology, _ = completed(cpus=(1, 3, 77))
    assert (topology.reserved_cpus, topology.reserved_count) == ({0, 2}, 0)


def test_zones_are_taken_where_the_machine_does_not_tell_them():
    cards = {"1b:00.0": (0,), "gpu-1": (0,), "gpu-2": (7,)}
    topology, found = completed(devices={"amd.com/gpu": cards, "a/nic": {"0000:19:00.0": (0, 1)}})
    assert [card.zones for card in found] == [(0,), (1,), ()], "by any name, never another one, never an unknown zone"
    assert topology.devices == (replace(NIC, zones=(0, 1)),)


def test_devices_that_the_machine_does_not_list_are_added():
    plugins = {"b/fpga": {"y": (1,), "x": (9,)}, "nvidia.com/gpu.shared": {"n1/pci-1::0": (0,)}}
    topology, _ = completed(devices=plugins)
    assert topology.devices == (NIC, Device("b/fpga", 0, "x"), Device("b/fpga", 1, "y", zones=(1,)))


def test_memory_is_that_of_the_memory_manager():
    blocks = (
        MemoryHolding("memory", (0,), 60),
        MemoryHolding("memory", (0,), 10),
        MemoryHolding("memory", (0, 1), 5),
        MemoryHolding("hugepages-2Mi", (1,), 80),
    )
    topology, _ = completed(memory=blocks)
    assert topology.zones == (replace(ZONES[0], memory=Room(100, 70)), ZONES[1])
