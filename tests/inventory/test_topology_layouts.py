"""Recorded machines of many layouts become the right topology."""

from __future__ import annotations

import pytest
from fake_nvml import FakeNvml
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import GIB, write
from recorded_topology import (
    ADAPTER,
    AMD,
    ASCEND,
    EIGHT,
    MELLANOX,
    NODES,
    NVSWITCH,
    V100_DOUBLE,
    V100_SINGLE,
    adapter,
    behind_switches,
    bus_of,
    cards,
    device,
    own_bridge,
    read,
    two_sockets,
    v100,
    zones,
)

from ullage.inventory.nvml import NvmlCards
from ullage.inventory.topology_reader import TopologyReader
from ullage.model.idset import format_ids
from ullage.model.topology import Cpu, Device, Path, Room, Topology, Zone


def matrix(reading):
    """Path and links of each pair of cards, by their indices."""
    index = {gpu.uuid: gpu.index for gpu in reading.cards}
    return {(index[link.a], index[link.b]): (link.path, link.nvlinks) for link in reading.topology.links}


def test_two_sockets_with_eight_cards(tmp_path):
    found = read(tmp_path, two_sockets(tmp_path))
    assert found.topology.zones == (Zone(0, Room(64 * GIB, 64 * GIB)), Zone(1, Room(64 * GIB, 64 * GIB)))
    assert found.topology.distances == ((10, 20), (20, 10))
    assert [gpu.zones for gpu in found.cards] == [(0,)] * 4 + [(1,)] * 4
    assert (found.topology.source, found.topology.observed_at, found.note) == ("sysfs", 100.0, "")
    assert {path for (a, b), (path, _) in matrix(found).items() if a // 4 == b // 4} == {Path.NODE}
    assert {path for (a, b), (path, _) in matrix(found).items() if a // 4 != b // 4} == {Path.SYS}
    assert len(matrix(found)) == 28


def test_core_ids_that_repeat_on_each_socket_name_different_cores(tmp_path):
    cpus = read(tmp_path, two_sockets(tmp_path)).topology.cpus
    assert [cpu for cpu in cpus if cpu.core == 3] == [
        Cpu(3, 0, 0, 3),
        Cpu(7, 1, 1, 3),
        Cpu(11, 0, 0, 3),
        Cpu(15, 1, 1, 3),
    ]
    assert len({(cpu.socket, cpu.core) for cpu in cpus}) == 8


def test_four_zones_with_their_distances(tmp_path):
    table = [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]]
    zones(tmp_path, {zone: f"{4 * zone}-{4 * zone + 3}" for zone in range(4)}, distances=table)
    for place, number in enumerate(EIGHT):
        device(tmp_path, bus_of(number), own_bridge(number), place // 2)
    found = read(tmp_path, FakeNvml(*cards(*EIGHT)))
    assert found.topology.distances == tuple(map(tuple, table))
    assert [gpu.zones for gpu in found.cards] == [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]


def test_the_mesh_of_a_v100_machine(tmp_path):
    pairs = matrix(read(tmp_path, v100(tmp_path)))
    assert {pair for pair, (_, links) in pairs.items() if links == 2} == set(V100_DOUBLE)
    assert {pair for pair, (_, links) in pairs.items() if links == 1} == set(V100_SINGLE)
    assert {pair for pair, (path, _) in pairs.items() if path is Path.PIX} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    inside = {(a, b) for a, b in pairs if a // 4 == b // 4 and a // 2 != b // 2}
    assert {pair for pair, (path, _) in pairs.items() if path is Path.PHB} == inside
    assert {path for (a, b), (path, _) in pairs.items() if a // 4 != b // 4} == {Path.SYS}


@pytest.mark.parametrize("silent", [None, "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"])
def test_links_that_end_at_a_switch_join_all_cards_behind_one(tmp_path, silent):
    library = behind_switches(tmp_path)
    library.installed[5].nvlinks[4:6] = [None, None]
    for card in library.installed:
        card.failing = {silent: FakeNvml.NVML_ERROR_NOT_SUPPORTED}
    pairs = matrix(read(tmp_path, library))
    assert {links for pair, (_, links) in pairs.items() if 5 in pair} == {16}
    assert {links for pair, (_, links) in pairs.items() if 5 not in pair} == {18}
    assert len(pairs) == 28


def test_ends_that_disagree_count_as_the_smaller_number_with_a_note(tmp_path):
    library = two_sockets(tmp_path)
    a, b, c = library.installed[:3]
    a.nvlinks = [b.bus_id] * 4 + [c.bus_id]
    b.nvlinks = [a.bus_id] * 2
    found = read(tmp_path, library)
    assert (matrix(found)[0, 1], matrix(found)[0, 2]) == ((Path.NODE, 2), (Path.NODE, 0))
    assert "GPU-1b has 4 NVLinks to GPU-3b, which has 2 back" in found.note
    assert "GPU-1b has 1 NVLinks to GPU-4b, which has 0 back" in found.note


def test_links_to_other_devices_do_not_count(tmp_path):
    library = two_sockets(tmp_path)
    library.installed[0].nvlinks = ["00000004:04:00.1", "no address", ""]
    assert {links for _, links in matrix(read(tmp_path, library)).values()} == {0}


def test_links_are_remembered_while_nvml_does_not_answer(tmp_path):
    library, reader = behind_switches(tmp_path), TopologyReader(tmp_path)
    nvml = NvmlCards(library)
    before = reader.read(nvml.cards(), nvml, range(64))
    library.failing["nvmlInit"] = FakeNvml.NVML_ERROR_UNKNOWN
    after = reader.read(nvml.cards(), nvml, range(64))
    assert [gpu.healthy for gpu in (*before.cards, *after.cards)] == [True] * 8 + [False] * 8
    assert after.topology is before.topology


def test_one_zone_and_a_card_behind_each_of_two_host_bridges(tmp_path):
    zones(tmp_path, {0: "0-7"})
    for number in (0x1B, 0x3B):
        device(tmp_path, bus_of(number), own_bridge(number), -1)
    found = read(tmp_path, FakeNvml(*cards(0x1B, 0x3B)))
    assert [gpu.zones for gpu in found.cards] == [(), ()]
    assert matrix(found) == {(0, 1): (Path.NODE, 0)}


def test_paths_within_one_host_bridge(tmp_path):
    zones(tmp_path, {0: "0-7"})
    root = ("pci0000:00", "0000:00:01.0")
    switch = (*root, "0000:01:00.0")
    device(tmp_path, "0000:03:00.0", (*switch, "0000:02:00.0"))
    device(tmp_path, "0000:04:00.0", (*switch, "0000:02:01.0"))
    device(tmp_path, "0000:07:00.0", (*switch, "0000:02:02.0", "0000:05:00.0", "0000:06:00.0"))
    device(tmp_path, "0000:09:00.0", ("pci0000:00", "0000:00:02.0"))
    pairs = matrix(read(tmp_path, FakeNvml(*cards(3, 4, 7, 9))))
    assert pairs[0, 1][0] is Path.PIX
    assert pairs[0, 2][0] is Path.PXB
    assert pairs[0, 3][0] is Path.PHB


def test_cards_on_one_bus_below_a_bridge_are_one_board_but_not_those_of_a_virtual_machine(tmp_path):
    zones(tmp_path, {0: "0-7"})
    board = ("pci0000:00", "0000:00:01.0")
    device(tmp_path, "0000:03:00.0", board)
    device(tmp_path, "0000:03:01.0", board)
    device(tmp_path, "0000:00:05.0", board[:1])
    device(tmp_path, "0000:00:06.0", board[:1])
    library = FakeNvml(*cards(0, 1, 2, 3))
    for card, bus in zip(library.installed, ("03:00.0", "03:01.0", "00:05.0", "00:06.0"), strict=True):
        card.bus_id = f"00000000:{bus}"
    pairs = matrix(read(tmp_path, library))
    assert (pairs[0, 1][0], pairs[2, 3][0]) == (Path.BOARD, Path.PHB)


def test_other_devices_are_listed_with_their_zones_and_paths(tmp_path):
    library = two_sockets(tmp_path)
    adapter(tmp_path, 0x1D, 0, (*own_bridge(0x1B), "0000:1c:00.0"))
    adapter(tmp_path, 0x9D, 1)
    device(tmp_path, "0000:e1:00.0", own_bridge(0xE1), 1, AMD, 0x120000, 0x74A1)
    device(tmp_path, "0000:e3:00.0", own_bridge(0xE3), -1, ASCEND, 0x120000, 0xD802)
    device(tmp_path, "0000:e5:00.0", own_bridge(0xE5), 1, kind=NVSWITCH)
    device(tmp_path, "0000:e7:00.0", own_bridge(0xE7), 1, MELLANOX, ADAPTER + 0x010000)
    topology = read(tmp_path, library).topology
    assert topology.devices == (
        Device("nic", 0, "0000:1d:00.0", "0000:1d:00.0", (0,), model="15b3:1021"),
        Device("nic", 1, "0000:9d:00.0", "0000:9d:00.0", (1,), model="15b3:1021"),
        Device("amd.com/gpu", 0, "0000:e1:00.0", "0000:e1:00.0", (1,), model="1002:74a1"),
        Device("huawei.com/Ascend910", 0, "0000:e3:00.0", "0000:e3:00.0", (), model="19e5:d802"),
    )
    paths = {(link.a, link.b): link.path for link in topology.links}
    assert paths["GPU-1b", "0000:1d:00.0"] is Path.PIX
    assert paths["GPU-1b", "0000:9d:00.0"] is Path.SYS
    assert ("GPU-1b", "0000:e3:00.0") not in paths


def test_functions_that_an_adapter_makes_for_guests_are_not_listed(tmp_path):
    zones(tmp_path, {0: "0-7"})
    adapter(tmp_path, 0x1B, 0)
    guest = device(tmp_path, "0000:1b:00.1", own_bridge(0x1B), 0, MELLANOX, ADAPTER)
    (guest / "physfn").symlink_to("../0000:1b:00.0")
    assert [one.bus_id for one in read(tmp_path).topology.devices] == ["0000:1b:00.0"]


def test_seventeen_zones_and_zones_with_gaps(tmp_path):
    zones(tmp_path / "many", {zone: str(zone) for zone in range(17)})
    assert read(tmp_path / "many").topology.zone_ids == tuple(range(17))
    zones(tmp_path / "gaps", {0: "0-3", 8: "4-7", 63: ""})
    found = read(tmp_path / "gaps")
    assert (found.topology.zone_ids, {cpu.zone for cpu in found.topology.cpus}) == ((0, 8, 63), {0, 8})
    assert found.note == ""


@st.composite
def records(draw):
    """The zones of some machine, and per CPU its zone, socket and core."""
    ids = sorted(draw(st.sets(st.integers(0, 63), min_size=1, max_size=6)))
    places = st.tuples(st.sampled_from(ids), st.integers(0, 3), st.integers(0, 2**31 - 1))
    row = st.lists(st.integers(0, 255), min_size=len(ids), max_size=len(ids))
    return (
        ids,
        draw(st.dictionaries(st.integers(0, 4095), places, max_size=12)),
        draw(st.lists(row, min_size=len(ids), max_size=len(ids))),
        draw(st.integers(0, 2**46)),
    )


@settings(max_examples=30)
@given(records())
def test_bytes_of_the_kernel_are_read_unchanged(tmp_path_factory, record):
    ids, cpus, distances, memory_kb = record
    root = tmp_path_factory.mktemp("machine")
    inside = {zone: format_ids(cpu for cpu, place in cpus.items() if place[0] == zone) for zone in ids}
    zones(root, inside, memory_kb, distances, lambda cpu: cpus[cpu][1:])
    found = read(root, usable=[cpu for cpu in cpus if cpu % 2])
    assert found.topology == Topology(
        zones=tuple(Zone(zone, Room(memory_kb * 1024, memory_kb * 1024)) for zone in ids),
        distances=tuple(map(tuple, distances)),
        cpus=tuple(Cpu(cpu, *cpus[cpu]) for cpu in sorted(cpus)),
        reserved_cpus=frozenset(cpu for cpu in cpus if cpu % 2 == 0),
        source="sysfs",
        observed_at=100.0,
    )
    assert found.note == ""


def test_memory_of_a_zone_less_its_huge_pages(tmp_path):
    zones(tmp_path, {0: "0-3"}, memory_kb=8 * 2**20)
    write(tmp_path, f"{NODES}/node0/hugepages/hugepages-2048kB/nr_hugepages", 512)
    write(tmp_path, f"{NODES}/node0/hugepages/hugepages-1048576kB/nr_hugepages", 2)
    (zone,) = read(tmp_path).topology.zones
    assert zone == Zone(0, Room(8 * GIB, 5 * GIB), {2**21: Room(GIB, GIB), 2**30: Room(2 * GIB, 2 * GIB)})


def test_cpus_that_this_process_is_kept_off_are_reserved(tmp_path):
    zones(tmp_path, {0: "0-3", 1: "4-7"})
    assert read(tmp_path, usable={0, 1, 6, 99}).topology.reserved_cpus == {2, 3, 4, 5, 7}


def test_a_machine_without_zones_has_no_topology_and_no_notes(tmp_path):
    device(tmp_path, bus_of(0x1B), own_bridge(0x1B), 1)
    found = read(tmp_path, FakeNvml(*cards(0x1B)))
    assert (found.topology, found.note) == (None, "")
    assert found.cards[0].zones == (1,)


def test_unchanged_facts_are_read_again_after_a_minute(tmp_path):
    library, moment = two_sockets(tmp_path), [0.0]
    reader = TopologyReader(tmp_path, now=lambda: 100.0 + moment[0], steady=lambda: moment[0])
    first = read(tmp_path, library, reader=reader)
    write(tmp_path, f"{NODES}/node0/distance", "10 30")
    moment[0] = 59.0
    assert read(tmp_path, library, reader=reader).topology is first.topology
    moment[0] = 61.0
    second = read(tmp_path, library, reader=reader)
    assert second.topology.distances == ((10, 30), (20, 10))
    assert (first.topology.observed_at, second.topology.observed_at) == (100.0, 161.0)
    moment[0] = 122.0
    assert read(tmp_path, library, reader=reader).topology is second.topology


def test_a_new_device_is_seen_at_once(tmp_path):
    library, reader = two_sockets(tmp_path), TopologyReader(tmp_path)
    assert read(tmp_path, library, reader=reader).topology.devices == ()
    adapter(tmp_path, 0xE1, 1)
    assert len(read(tmp_path, library, reader=reader).topology.devices) == 1
