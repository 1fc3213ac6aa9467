from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest
from fake_nvml import FakeCard, FakeNvml
from hypothesis import given
from hypothesis import strategies as st
from recorded import GIB, V2, groups, machine, write

from ullage.inventory.machine import MachineSettings, clean_name, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.name import check_name
from ullage.model.node import MAX_EXECUTORS
from ullage.model.resources import Resources


def node_of(root, environment=None, library=None, **settings):
    nvml = NvmlCards(library or FakeNvml())
    return discover(MachineSettings(**settings), environment or {}, nvml, root=root).node


def test_a_machine_without_limits_offers_all_it_has(tmp_path):
    node = node_of(machine(tmp_path))
    assert (node.name, node.cpu_milli, node.memory_bytes) == ("gpu-01", 8000, 64 * GIB)
    assert (node.arch, node.os) == (platform.machine(), platform.system().lower())
    assert (node.gpus, node.gpu_source, node.max_executors) == ((), "nvml", MAX_EXECUTORS)


def test_the_affinity_limits_the_cpus(tmp_path):
    assert node_of(machine(tmp_path, cpus="1-2,5")).cpu_milli == 3000


def test_cpus_in_the_affinity_that_are_not_online_do_not_count(tmp_path):
    assert node_of(machine(tmp_path, cpus="0-127", online="0-3")).cpu_milli == 4000


def test_without_a_list_of_online_cpus_the_affinity_is_believed(tmp_path):
    assert node_of(machine(tmp_path, cpus="0-5", online=None)).cpu_milli == 6000


def test_without_a_recorded_affinity_the_kernel_is_asked(tmp_path):
    (machine(tmp_path) / "proc/self/status").write_text("Name:\tpython\n")
    assert node_of(tmp_path).cpu_milli == len(os.sched_getaffinity(0)) * 1000


def test_the_smaller_of_affinity_and_quota_counts(tmp_path):
    groups(machine(tmp_path, cpus="0-1"), ["0::/"], V2)
    write(tmp_path, "sys/fs/cgroup/cpu.max", "150000 100000")
    assert node_of(tmp_path).cpu_milli == 1500
    write(tmp_path, "sys/fs/cgroup/cpu.max", "600000 100000")
    assert node_of(tmp_path).cpu_milli == 2000


def test_the_smaller_of_installed_memory_and_limit_counts(tmp_path):
    groups(machine(tmp_path), ["0::/"], V2)
    write(tmp_path, "sys/fs/cgroup/memory.max", 10 * GIB)
    assert node_of(tmp_path).memory_bytes == 10 * GIB
    write(tmp_path, "sys/fs/cgroup/memory.max", 2**63 - 4096)
    assert node_of(tmp_path).memory_bytes == 64 * GIB


def test_settings_override_discovery(tmp_path):
    reserved = Resources(1000, GIB)
    node = node_of(
        machine(tmp_path),
        name="n1",
        gpus=1,
        cpu_milli=96_000,
        memory_bytes=GIB * 2,
        reserved=reserved,
        max_executors=4,
        labels={"rack": "r1"},
    )
    assert (node.name, node.cpu_milli, node.memory_bytes, node.max_executors) == ("n1", 96_000, 2 * GIB, 4)
    assert (node.labels, node.gpus[0].uuid, node.gpu_source) == ({"rack": "r1"}, "declared-n1-0", "configuration")
    assert node.allocatable == Resources(95_000, GIB, 1000)


def test_the_node_has_the_cards_and_the_note_names_their_source(tmp_path):
    nvml = NvmlCards(FakeNvml(FakeCard("GPU-aa"), FakeCard("GPU-bb")))
    found = discover(MachineSettings(), {"CUDA_VISIBLE_DEVICES": "1"}, nvml, root=machine(tmp_path))
    assert [gpu.uuid for gpu in found.node.gpus] == ["GPU-bb"]
    assert found.node.gpu_source == "environment"
    assert found.note == "1 card: CUDA_VISIBLE_DEVICES is '1'."


def test_a_lost_card_lowers_allocatable_and_stays_in_capacity(tmp_path):
    lost = {"nvmlDeviceGetMemoryInfo": FakeNvml.NVML_ERROR_GPU_IS_LOST}
    node = node_of(machine(tmp_path), library=FakeNvml(FakeCard("GPU-aa"), FakeCard("GPU-bb", failing=lost)))
    assert (node.capacity.gpu_milli, node.allocatable.gpu_milli) == (2000, 1000)


def test_later_changes_of_the_settings_labels_do_not_reach_the_node(tmp_path):
    labels = {"rack": "r1"}
    node = node_of(machine(tmp_path), labels=labels)
    labels["rack"] = "r2"
    assert node.labels == {"rack": "r1"}


def test_memory_that_cannot_be_read_must_be_configured(tmp_path):
    (machine(tmp_path) / "proc/meminfo").unlink()
    with pytest.raises(Unavailable, match=r"node\.memory"):
        node_of(tmp_path)
    assert node_of(tmp_path, memory_bytes=GIB).memory_bytes == GIB


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"name": "../etc"}, "node.name"),
        ({"name": ""}, "node.name"),
        ({"gpus": -1}, "node.gpus"),
        ({"cpu_milli": 0}, "node.cpu"),
        ({"cpu_milli": True}, "node.cpu"),
        ({"memory_bytes": -1}, "node.memory"),
        ({"memory_bytes": 2**63}, "node.memory"),
        ({"max_executors": 0}, "node.max_executors"),
        ({"reserved": Resources(-1)}, "node.reserved.cpu"),
        ({"reserved": Resources(0, -1)}, "node.reserved.memory"),
        ({"reserved": Resources(0, 0, 1000)}, "node.reserved.gpu"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path, settings, name):
    with pytest.raises(InvalidRequest) as refusal:
        node_of(machine(tmp_path), **settings)
    assert refusal.value.field == name


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu-01.lab.example", "gpu-01.lab.example"),
        ("lab box #3", "lab-box-3"),
        ("..hidden", "hidden"),
        ("a..b", "a.b"),
        ("", "node"),
        ("\u00e9", "node"),
        ("x" * 300, "x" * 253),
    ],
)
def test_a_host_name_is_bent_to_the_rule_of_names(host, name):
    assert clean_name(host) == name


@given(st.text())
def test_every_bent_name_is_a_name(text):
    assert check_name("node.name", clean_name(text))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the files of a Linux machine")
def test_the_machine_that_runs_this_test_has_no_more_than_the_kernel_grants():
    node = discover(MachineSettings(gpus=0), os.environ, NvmlCards(FakeNvml())).node
    assert 0 < node.cpu_milli <= len(os.sched_getaffinity(0)) * 1000
    assert node.memory_bytes > 0


@pytest.mark.skipif(not Path("/sys/devices/system/node/online").exists(), reason="the kernel here tells of no zones")
def test_the_topology_of_the_machine_that_runs_this_test_agrees_with_its_processor_list():
    node = discover(MachineSettings(gpus=0), os.environ, NvmlCards(FakeNvml())).node
    assert node.topology is not None, node.topology_note
    cpus = {cpu.id for cpu in node.topology.cpus}
    assert cpus - node.topology.reserved_cpus == os.sched_getaffinity(0)
    listed = re.findall(r"^processor\s*: ([0-9]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if not listed:
        pytest.skip("/proc/cpuinfo lists no processors on this architecture")
    assert cpus == set(map(int, listed))
    total = sum(zone.memory.total for zone in node.topology.zones if zone.memory)
    assert total or node.topology_note
    assert total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
