"""No file of a machine, whatever its content, crashes or stalls the reader, or empties the machine."""

from __future__ import annotations

import os

import pytest
from fake_nvml import FakeNvml
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import write
from recorded_topology import CPUS, EIGHT, NODES, adapter, cards, read, two_sockets, zones

from ullage.inventory.files import MAX_BYTES, list_names, read_number, read_text
from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.topology import Topology

CARD = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
FILES = (
    "sys/devices/system/cpu/online",
    f"{NODES}/online",
    f"{NODES}/node1/cpulist",
    f"{NODES}/node1/distance",
    f"{NODES}/node1/meminfo",
    f"{NODES}/node1/hugepages/hugepages-2048kB/nr_hugepages",
    f"{CPUS}/cpu5/topology/core_id",
    f"{CPUS}/cpu5/topology/physical_package_id",
    f"{CARD}/vendor",
    f"{CARD}/device",
    f"{CARD}/class",
    f"{CARD}/numa_node",
    f"{CARD}/local_cpulist",
    "proc/driver/nvidia/gpus/0000:3b:00.0/information",
    "proc/self/status",
)
CONTENTS = {
    "empty": b"",
    "blank": b"\n\n",
    "binary": bytes(range(256)) * 4,
    "huge": b"1," * (MAX_BYTES // 2 + 1),
    "a large number": b"99999999999999999999",
    "a large range": b"0-99999999999",
    "many ranges": b"0-4095," * 100_000 + b"1",
    "negative": b"-1",
    "text": b"one, two and three",
    "backwards": b"9-1",
    "digits of another script": "٣".encode(),
}


@pytest.fixture(scope="module")
def machine_files(tmp_path_factory):
    """A sound machine with a file for each of `FILES`, and what is in them."""
    root = tmp_path_factory.mktemp("machine")
    library = two_sockets(root)
    adapter(root, 0x9D, 1)
    write(root, f"{NODES}/node1/hugepages/hugepages-2048kB/nr_hugepages", 16)
    write(root, f"{CARD}/local_cpulist", "0-3")
    write(root, "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: A\nGPU UUID: GPU-3b")
    assert read(root, library).note == ""
    return root, library, {name: (root / name).read_bytes() for name in FILES}


@pytest.fixture
def recorded(machine_files):
    """The machine and its NVML; whatever a test does to one of `FILES` is undone."""
    root, library, contents = machine_files
    yield root, library
    for name, content in contents.items():
        path = root / name
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def node_of(root, library):
    return discover(MachineSettings(), {}, NvmlCards(library), root=root).node


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_malformed_file_loses_only_its_own_facts(recorded, name, content):
    root, library = recorded
    (root / name).write_bytes(content)
    node = node_of(root, library)
    assert len(node.gpus) == 8
    assert node.cpu_milli > 0
    assert all(set(gpu.zones) <= {0, 1} for gpu in node.gpus)
    if node.topology is None:
        assert name in (f"{NODES}/online", f"{NODES}/node1/cpulist")
        assert node.topology_note.startswith("the topology is not used: ")
    else:
        assert set(node.topology.zone_ids) <= {0, 1}
        assert node.topology.zones[0].memory is not None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["missing", "a directory", "a pipe", "a circle of links", "not to be read"])
def test_a_path_that_is_no_file_counts_as_missing(recorded, name, kind):
    root, library = recorded
    path = root / name
    path.unlink()
    if kind == "a directory":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a circle of links":
        path.symlink_to(path.name)
    elif kind == "not to be read":
        path.write_text("1")
        path.chmod(0)
    assert len(node_of(root, library).gpus) == 8


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (f"{NODES}/online", "", "node/online: '' is not valid"),
        (f"{NODES}/online", "0,64", "node/online: '0,64' is not valid: ids are at most 63"),
        (f"{NODES}/online", "0-99999999999", "node/online: '0-99999999999' is not valid"),
        (f"{NODES}/node1/cpulist", "0-3", "cpus: 0 is not valid: it lies in zone 0 and in zone 1"),
    ],
)
def test_zones_that_contradict_each_other_leave_the_machine_without_a_topology(recorded, name, content, message):
    root, library = recorded
    write(root, name, content)
    node = node_of(root, library)
    assert (node.topology, {gpu.zones for gpu in node.gpus}) == (None, {()})
    assert node.topology_note.startswith(f"the topology is not used: {message}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (f"{NODES}/node1/cpulist", "0-99999999999", "node1/cpulist: '0-99999999999' is not valid"),
        (f"{NODES}/node1/distance", "20", "node1/distance is not a distance for each of 2 zones"),
        (f"{NODES}/node1/distance", "20 256", "node1/distance is not a distance for each of 2 zones"),
        (f"{NODES}/node1/meminfo", "MemTotal: -5 kB", "node1/meminfo has no total memory"),
        (
            f"{NODES}/node1/meminfo",
            "MemTotal: 999999999999999 kB",
            "node1/meminfo has no total memory",
        ),
        (
            f"{NODES}/node1/hugepages/hugepages-2048kB/nr_hugepages",
            99_999_999,
            "node1/hugepages hold more than the memory of the zone",
        ),
        (f"{CPUS}/cpu5/topology/core_id", "-1", "CPU 5 does not report its core"),
        *((f"{CARD}/{name}", "", "PCI: 0000:3b:00.0 cannot be read") for name in ("vendor", "device", "class")),
    ],
)
def test_an_unreadable_piece_is_left_out_with_a_note(recorded, name, content, message):
    root, library = recorded
    write(root, name, content)
    found = read(root, library)
    assert isinstance(found.topology, Topology)
    assert found.note.startswith(message)


def test_memory_of_zones_is_unknown_if_their_sum_is_far_below_the_machines(tmp_path):
    zones(tmp_path, {0: "0-3", 1: "4-7"}, memory_kb=1000)
    write(tmp_path, "proc/meminfo", "MemTotal:       2200 kB")
    assert [zone.memory.total for zone in read(tmp_path).topology.zones] == [1_024_000, 1_024_000]
    write(tmp_path, "proc/meminfo", "MemTotal:       2300 kB")
    found = read(tmp_path)
    assert [zone.memory for zone in found.topology.zones] == [None, None]
    assert found.note == "the zones together have less memory than the machine: the memory of each is unknown"


def test_cpus_whose_cores_are_not_known_are_no_threads_of_each_other(recorded):
    root, library = recorded
    (root / f"{CPUS}/cpu5/topology/core_id").unlink()
    cpus = read(root, library).topology.cpus
    assert len({(cpu.socket, cpu.core) for cpu in cpus}) == len(cpus) == 16
    assert all(cpu.socket == cpu.zone for cpu in cpus)


def test_more_devices_than_can_be_are_not_taken(tmp_path):
    library = two_sockets(tmp_path)
    for number in range(4097):
        (tmp_path / f"sys/bus/pci/devices/{number}").touch()
    found = read(tmp_path, library)
    assert found.note == "the PCI devices cannot be listed, or there are more than 4096: none is used"
    assert (found.topology.zone_ids, {gpu.zones for gpu in found.cards}) == ((0, 1), {()})


def test_a_long_list_of_troubles_is_cut_short(tmp_path):
    zones(tmp_path, {zone: str(zone) for zone in range(17)}, memory_kb=2**52)
    note = read(tmp_path).note
    assert note.endswith("; and 14 more")
    assert len(note) < 200


def test_names_that_are_no_addresses_are_skipped(tmp_path):
    library = two_sockets(tmp_path)
    for name in ("0000:zz:00.0", "..", "0000:3b:00.9", "x" * 200, "\udcff"):
        path = tmp_path / "sys/bus/pci/devices" / name
        if not path.exists():
            path.touch()
    assert [gpu.zones for gpu in read(tmp_path, library).cards] == [(0,)] * 4 + [(1,)] * 4


@settings(max_examples=60)
@given(st.sampled_from(FILES), st.binary(max_size=200) | st.text("0123456789-, x\n", max_size=40).map(str.encode))
def test_nothing_that_is_written_anywhere_is_a_crash(tmp_path_factory, name, content):
    root = tmp_path_factory.mktemp("machine")
    zones(root, {0: "0-1", 1: "2-5"})
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)
    assert len(node_of(root, FakeNvml(*cards(*EIGHT))).gpus) == 8


def test_a_text_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "most").write_bytes(b"a" * MAX_BYTES)
    (tmp_path / "more").write_bytes(b"a" * (MAX_BYTES + 1))
    assert (len(read_text(tmp_path / "most")), read_text(tmp_path / "more")) == (MAX_BYTES, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-1", -1),
        ("0x10de", 0x10DE),
        ("08", 8),
        ("1_0", None),
        ("ff", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_a_number_is_one_as_the_kernel_writes_it(tmp_path, text, number):
    write(tmp_path, "number", text)
    assert read_number(tmp_path / "number") == number


def test_a_directory_is_listed_up_to_its_bound(tmp_path):
    for name in "ba":
        (tmp_path / name).touch()
    assert (list_names(tmp_path, 2), list_names(tmp_path, 1), list_names(tmp_path / "a", 2)) == (["a", "b"], None, None)
