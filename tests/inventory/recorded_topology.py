"""Writes the zones and PCI devices of machines below a directory, as the kernel shows them in sysfs."""

from __future__ import annotations

from fake_nvml import SWITCH, FakeCard, FakeNvml
from recorded import machine, write

from ullage.inventory.nvml import NvmlCards
from ullage.inventory.topology_reader import TopologyReader
from ullage.model.idset import format_ids, parse_ids

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"

NVIDIA, AMD, ASCEND, MELLANOX = 0x10DE, 0x1002, 0x19E5, 0x15B3
CARD, ADAPTER, NVSWITCH, PORT = 0x030200, 0x020700, 0x068000, 0x060400


def zones(root, cpus, memory_kb=64 * 2**20, distances=None, core_of=None):
    """A machine whose zones are the keys of `cpus`; `core_of` tells (socket, core) of a CPU, or is None."""
    everything = [cpu for text in cpus.values() for cpu in parse_ids(text, "cpus")]
    machine(root, format_ids(everything), format_ids(everything), memory_kb * len(cpus))
    write(root, f"{NODES}/online", format_ids(cpus))
    for row, (zone, text) in enumerate(cpus.items()):
        write(root, f"{NODES}/node{zone}/cpulist", text)
        write(root, f"{NODES}/node{zone}/meminfo", f"Node {zone} MemTotal:   {memory_kb} kB\nNode {zone} MemFree: 1 kB")
        usual = [10 if column == row else 20 for column in range(len(cpus))]
        write(root, f"{NODES}/node{zone}/distance", " ".join(map(str, distances[row] if distances else usual)))
        for cpu in parse_ids(text, "cpus"):
            socket, core = core_of(cpu) if core_of else (zone, cpu)
            write(root, f"{CPUS}/cpu{cpu}/topology/physical_package_id", socket)
            write(root, f"{CPUS}/cpu{cpu}/topology/core_id", core)
    return root


def device(root, address, above, zone=None, vendor=NVIDIA, kind=CARD, number=0x2330, local=None):
    """A device below the bridges `above`, from the host bridge down, each of which is made when it is new."""
    place = root / "sys/devices"
    for bridge in above:
        place /= bridge
        place.mkdir(parents=True, exist_ok=True)
    write(place, f"{address}/vendor", f"{vendor:#06x}")
    write(place, f"{address}/device", f"{number:#06x}")
    write(place, f"{address}/class", f"{kind:#08x}")
    if zone is not None:
        write(place, f"{address}/numa_node", zone)
    if local is not None:
        write(place, f"{address}/local_cpulist", local)
    links = root / "sys/bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / address).symlink_to(place / address)
    return place / address


def bus_of(number):
    return f"0000:{number:02x}:00.0"


def own_bridge(number):
    """A host bridge with one port, for the device on this bus alone."""
    return (f"pci0000:{number - 1:02x}", f"0000:{number - 1:02x}:00.0")


def cards(*numbers, **facts):
    """Cards as NVML lists them, on these buses."""
    return [FakeCard(f"GPU-{number:02x}", bus_id=f"00000000:{number:02X}:00.0", **facts) for number in numbers]


EIGHT = (0x1B, 0x3B, 0x4B, 0x5B, 0x9B, 0xBB, 0xCB, 0xDB)


def two_sockets(root, numbers=EIGHT, zone_of=lambda place: place // 4):
    """Layout B: cards 0 to 3 near to zone 0, 4 to 7 near to zone 1, each behind its own host bridge."""
    zones(root, {0: "0-3,8-11", 1: "4-7,12-15"}, core_of=lambda cpu: (cpu // 4 % 2, cpu % 4))
    for place, number in enumerate(numbers):
        device(root, bus_of(number), own_bridge(number), zone_of(place))
    return FakeNvml(*cards(*numbers))


def behind_switches(root):
    """A machine like `two_sockets` whose cards are joined by switches, 18 links each."""
    library = two_sockets(root)
    device(root, "0000:fa:00.0", own_bridge(0xFA), 0, kind=NVSWITCH)
    for card in library.installed:
        card.nvlinks = [SWITCH] * 18
    return library


V100_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
V100_SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


def v100(root):
    """The DGX-1: two cards below each of four switches, two switches below each host bridge, a mesh of NVLinks."""
    zones(root, {0: "0-3", 1: "4-7"})
    numbers = (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A)
    for place, number in enumerate(numbers):
        top = 0x80 if place >= 4 else 0x00
        port = top + 4 * (place // 2 % 2)
        above = (f"pci0000:{top:02x}", f"0000:{top:02x}:{port + 2:02x}.0", f"0000:{port + 3:02x}:00.0")
        device(root, bus_of(number), (*above, f"0000:{port + 4:02x}:{place:02x}.0"), place // 4)
    library = FakeNvml(*cards(*numbers))
    for pairs, count in ((V100_DOUBLE, 2), (V100_SINGLE, 1)):
        for a, b in (*pairs, *((b, a) for a, b in pairs)):
            library.installed[a].nvlinks += [library.installed[b].bus_id] * count
    return library


def adapter(root, number, zone, above=None):
    """A network adapter."""
    return device(root, bus_of(number), above or own_bridge(number), zone, MELLANOX, ADAPTER, 0x1021)


def read(root, library=None, usable=range(4096), reader=None):
    """One reading of the machine below `root`, whose NVML is `library`."""
    nvml = NvmlCards(library or FakeNvml())
    return (reader or TopologyReader(root, now=lambda: 100.0)).read(nvml.cards(), nvml, usable)
