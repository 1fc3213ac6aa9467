"""ResourceSlices: the location of devices, and the pools that count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.topology.hostile import anything, shaped
from ullage.wire.topology.resourceslice import read_resource_slices


def device(name, **attributes):
    return {"name": name, "attributes": attributes}


def zoned(name, zone):
    return device(name, **{"resource.kubernetes.io/numaNode": zone})


def reported(name, *devices, driver="gpu.example.com", pool="n1", generation=1, count=1, **spec):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "nodeName": "n1",
            "devices": list(devices),
            **spec,
        },
    }


def devices_of(documents, **options):
    """The devices of all pools, and what was dropped."""
    pools, warnings = read_resource_slices(documents, **options)
    return tuple(device for pool in pools for device in pool.devices), warnings


def read(*documents):
    devices, warnings = devices_of(documents)
    assert warnings == ()
    return devices


def names(devices):
    return [device.name for device in devices]


DOCUMENT = reported(
    "s1",
    device(
        "gpu-0",
        uuid={"string": "GPU-1"},
        **{
            "resource.kubernetes.io/numaNode": {"int": 0},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:19:00.0"},
        },
    ),
)


def test_a_device_with_all_facts_about_its_location():
    (found,) = read(DOCUMENT)
    place = (found.node, found.zones, found.uuid, found.pcie_root, found.bus_id)
    assert (found.id, place) == (
        ("gpu.example.com", "n1", "gpu-0"),
        ("n1", (0,), "GPU-1", "pci0000:17", "0000:19:00.0"),
    )
    assert found.text("uuid") == found.text("gpu.example.com/uuid") == "GPU-1"


def test_a_cpu_device_and_a_nic_with_a_list_match():
    cpu, nic = read(
        reported("c", zoned("cpudev", {"int": 4}), driver="dra.cpu"),
        reported("n", zoned("nic-0", {"ints": [6, 4, 5, 7]}), driver="dra.net"),
    )
    assert (cpu.zones, nic.zones) == ((4,), (4, 5, 6, 7))


@pytest.mark.parametrize("zone", [None, {}, {"int": -1}, {"string": "0"}, {"ints": []}, {"int": 64}, {"bool": True}, 0])
def test_an_invalid_zone_is_unknown_and_not_zone_0(zone):
    assert read(reported("s", zoned("gpu-0", zone)))[0].zones == ()
    assert read(reported("s", device("gpu-0")))[0].zones == ()


@pytest.mark.parametrize("name", ["numa", "gpu.example.com/numa", "numaNode", "dra.net/numaNode", "dra.cpu/numaNodeID"])
def test_older_names_of_the_zone_are_read(name):
    assert read(reported("s", device("gpu-0", **{name: {"int": 1}})))[0].zones == (1,)


def test_older_names_come_from_configuration_and_the_common_one_counts_first():
    document = reported("s", device("gpu-0", socket={"int": 1}), device("gpu-1", numa={"int": 1}))
    found, _ = devices_of([document], older_names=("socket",))
    assert [one.zones for one in found] == [(1,), ()]
    both = device("gpu-0", **{"numa": {"int": 1}, "resource.kubernetes.io/numaNode": {"int": 0}})
    assert read(reported("s", both))[0].zones == (0,)


# --- which pools count ---


def test_only_the_newest_generation_counts():
    old, new = reported("s1", device("a"), generation=1), reported("s2", device("b"), generation=2)
    assert names(read(old, new)) == names(read(new, old)) == ["b"]


def test_a_pool_with_missing_slices_has_no_devices_even_if_an_older_generation_was_complete():
    documents = [reported("s1", device("a")), reported("s2", device("b"), generation=2, count=2)]
    devices, warnings = devices_of(documents)
    assert devices == ()
    assert "1 of 2 slices" in warnings[0]
    assert names(read(*documents, reported("s3", device("c"), generation=2, count=2))) == ["b", "c"]


def test_pools_of_different_drivers_are_separate():
    whole, part = reported("s1", device("a")), reported("s2", device("b"), driver="other", count=2)
    assert names(devices_of([part, whole])[0]) == ["a"]


def test_a_pool_that_names_a_device_twice_is_left_out():
    documents = [reported("s1", device("a"), count=2), reported("s2", device("a"), count=2)]
    devices, warnings = devices_of(documents)
    assert devices == ()
    assert "twice" in warnings[0]


def test_a_repeated_slice_counts_once():
    assert names(read(DOCUMENT, DOCUMENT)) == ["gpu-0"]


def test_a_device_has_its_own_node_or_several_that_reach_it():
    own = {**device("a"), "nodeName": "n2"}
    found = read(reported("s", own, device("b"), nodeName=None, perDeviceNodeSelection=True))
    assert [one.node for one in found] == ["n2", ""]
    assert [one.reaches("n2", {}) for one in found] == [True, False]  # the second says nothing of nodes


def test_malformed_devices_and_slices_are_dropped_and_named():
    devices, warnings = devices_of([reported("s1", "gpu", device(None), device("a")), {"kind": "Pod"}, 7])
    assert names(devices) == ["a"]
    assert len(warnings) == 4


@given(st.lists(shaped(DOCUMENT, ["spec", "pool", "devices", "int", "ints"]) | anything("spec"), max_size=3))
def test_any_documents_give_devices_or_sentences(documents):
    devices, warnings = devices_of(documents)
    assert all(one.driver and one.pool and one.name for one in devices)
    assert all(isinstance(warning, str) for warning in warnings)
