from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import GIB, V2, groups, v1, write

from ullage.inventory.cgroup import CgroupLimits, read_limits

CG = "sys/fs/cgroup"


def test_a_machine_without_control_groups_has_no_limits(tmp_path):
    assert read_limits(tmp_path) == CgroupLimits()


def test_version_2_gives_a_fractional_quota_and_a_memory_limit(tmp_path):
    groups(tmp_path, ["0::/job"], V2)
    write(tmp_path, f"{CG}/job/cpu.max", "150000 100000")
    write(tmp_path, f"{CG}/job/memory.max", 4 * GIB)
    assert read_limits(tmp_path) == CgroupLimits(1500, 4 * GIB)


def test_version_2_writes_max_for_no_limit(tmp_path):
    groups(tmp_path, ["0::/job"], V2)
    write(tmp_path, f"{CG}/job/cpu.max", "max 100000")
    write(tmp_path, f"{CG}/job/memory.max", "max")
    assert read_limits(tmp_path) == CgroupLimits()


def test_the_smallest_limit_on_the_way_to_the_root_counts(tmp_path):
    groups(tmp_path, ["0::/slice/job/step"], V2)
    write(tmp_path, f"{CG}/slice/job/step/cpu.max", "400000 100000")
    write(tmp_path, f"{CG}/slice/job/cpu.max", "max 100000")
    write(tmp_path, f"{CG}/slice/cpu.max", "200000 100000")
    write(tmp_path, f"{CG}/slice/job/step/memory.max", 2 * GIB)
    write(tmp_path, f"{CG}/slice/memory.max", 8 * GIB)
    assert read_limits(tmp_path) == CgroupLimits(2000, 2 * GIB)


def test_limits_of_a_neighbour_do_not_count(tmp_path):
    groups(tmp_path, ["0::/job"], V2)
    write(tmp_path, f"{CG}/other/cpu.max", "100000 100000")
    write(tmp_path, f"{CG}/job/below/memory.max", GIB)
    assert read_limits(tmp_path) == CgroupLimits()


def test_in_a_cgroup_namespace_the_own_group_is_the_mounted_root(tmp_path):
    groups(tmp_path, ["0::/"], V2)
    write(tmp_path, f"{CG}/cpu.max", "250000 100000")
    assert read_limits(tmp_path) == CgroupLimits(2500, None)


def test_a_group_outside_the_namespace_is_read_as_far_as_it_is_in_sight(tmp_path):
    groups(tmp_path, ["0::/../sibling"], V2)
    write(tmp_path, f"{CG}/cpu.max", "100000 100000")
    assert read_limits(tmp_path) == CgroupLimits(1000, None)


def test_version_1_reads_each_controller_in_its_own_hierarchy(tmp_path):
    own = ["5:memory:/job", "4:cpu,cpuacct:/slice/job", "1:name=systemd:/x"]
    mounts = [v1("memory"), ("/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")]
    groups(tmp_path, own, *mounts)
    write(tmp_path, f"{CG}/cpu,cpuacct/slice/job/cpu.cfs_quota_us", -1)
    write(tmp_path, f"{CG}/cpu,cpuacct/slice/job/cpu.cfs_period_us", 100000)
    write(tmp_path, f"{CG}/cpu,cpuacct/slice/cpu.cfs_quota_us", 75000)
    write(tmp_path, f"{CG}/cpu,cpuacct/slice/cpu.cfs_period_us", 50000)
    write(tmp_path, f"{CG}/memory/job/memory.limit_in_bytes", 3 * GIB)
    assert read_limits(tmp_path) == CgroupLimits(1500, 3 * GIB)


def test_a_version_1_container_without_namespace_finds_its_group_at_the_top_of_the_mount(tmp_path):
    groups(tmp_path, ["5:memory:/docker/ab12"], v1("memory", top="/docker/ab12"))
    write(tmp_path, f"{CG}/memory/memory.limit_in_bytes", GIB)
    assert read_limits(tmp_path) == CgroupLimits(None, GIB)


def test_a_mount_of_another_group_is_ignored(tmp_path):
    groups(tmp_path, ["5:memory:/docker/ab12"], v1("memory", top="/docker/cd34"))
    write(tmp_path, f"{CG}/memory/memory.limit_in_bytes", GIB)
    assert read_limits(tmp_path) == CgroupLimits()


def test_a_hybrid_machine_has_limits_of_both_versions(tmp_path):
    unified = ("/", "/sys/fs/cgroup/unified", "cgroup2", "rw")
    groups(tmp_path, ["5:memory:/job", "0::/job"], v1("memory"), unified)
    write(tmp_path, f"{CG}/memory/job/memory.limit_in_bytes", 6 * GIB)
    write(tmp_path, f"{CG}/unified/job/memory.max", 5 * GIB)
    write(tmp_path, f"{CG}/unified/cpu.max", "300000 100000")
    assert read_limits(tmp_path) == CgroupLimits(3000, 5 * GIB)


def test_a_group_whose_name_is_escaped_in_mountinfo_is_found(tmp_path):
    groups(tmp_path, [r"0::/dev\x2djob"], (r"/dev\134x2djob", "/sys/fs/cgroup", "cgroup2", "rw"))
    write(tmp_path, f"{CG}/memory.max", GIB)
    assert read_limits(tmp_path) == CgroupLimits(None, GIB)


@pytest.mark.parametrize("text", ["", "rubbish", "100000", "100000 0", "0 100000", "-5 100000"])
def test_a_quota_that_makes_no_sense_does_not_limit(tmp_path, text):
    groups(tmp_path, ["0::/"], V2)
    write(tmp_path, f"{CG}/cpu.max", text)
    assert read_limits(tmp_path) == CgroupLimits()


def test_the_smallest_quota_is_still_some_cpu(tmp_path):
    groups(tmp_path, ["0::/"], V2)
    write(tmp_path, f"{CG}/cpu.max", "1000 10000000")
    assert read_limits(tmp_path).cpu_milli == 1


@given(limits=st.lists(st.none() | st.integers(1, 2**50), min_size=1, max_size=6))
def test_of_any_chain_of_limits_the_smallest_counts(tmp_path_factory, limits):
    root = tmp_path_factory.mktemp("machine")
    path = "".join(f"/g{depth}" for depth in range(len(limits)))
    groups(root, [f"0::{path}"], V2)
    place = CG
    for depth, limit in enumerate(limits):
        place += f"/g{depth}"
        write(root, f"{place}/memory.max", "max" if limit is None else limit)
    assert read_limits(root).memory_bytes == min((limit for limit in limits if limit is not None), default=None)
