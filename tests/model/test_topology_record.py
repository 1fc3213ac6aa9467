"""A record that contradicts itself, or has a number out of range, is refused as a whole, with the fix."""

from __future__ import annotations

import pytest

from ullage.model.alignment import MAX_CONTAINERS, Alignment, ContainerNeeds
from ullage.model.error import InvalidRequest
from ullage.model.topology import MAX_ZONE_BYTES, Cpu, Device, Link, Room, Topology, Zone, as_mask, zones_of

ZONES = (Zone(0), Zone(1))


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"zones": (Zone(1), Zone(0))}, "topology-invalid", "topology zones: [1, 0]"),
        ({"zones": (Zone(0), Zone(0))}, "topology-invalid", "from 0 to 63"),
        ({"zones": (Zone(64),)}, "topology-invalid", "[64]"),
        ({"zones": (Zone(-1),)}, "topology-invalid", "[-1]"),
        ({"distances": ((10, 20),)}, "topology-invalid", "a row and a column per zone"),
        ({"distances": ((10, 256), (20, 10))}, "amount-out-of-range", "distances: 256"),
        ({"cpus": (Cpu(3, 0, 0, 0), Cpu(3, 1, 0, 1))}, "topology-invalid", "cpus: [3]"),
        ({"cpus": (Cpu(3, 2, 0, 0),)}, "topology-invalid", "cpus.3.zone: 2"),
        ({"cpus": (Cpu(3, 0, 0, -1),)}, "amount-out-of-range", "cpus.core: -1"),
        ({"devices": (Device("nic", 0, "a", zones=(2,)),)}, "topology-invalid", "devices.a.zones: (2,)"),
        ({"devices": (Device("nic", 0, "a", zones=(1, 0)),)}, "topology-invalid", "in ascending order"),
        ({"devices": (Device("nic", 2**31, "a"),)}, "amount-out-of-range", "devices.index"),
        ({"links": (Link("a", "b", nvlinks=-1),)}, "amount-out-of-range", "links.nvlinks: -1"),
        ({"reserved_count": -1}, "amount-out-of-range", "reserved_count: -1"),
        ({"zones": (Zone(0, Room(2**56 + 1, 0)),)}, "amount-out-of-range", "zones.0.memory.total"),
        ({"zones": (Zone(0, None, {2**21: Room(0, -1)}),)}, "amount-out-of-range", "zones.0.hugepages.2097152"),
        ({"zones": (Zone(0, None, {}, {"cpu": Room(2**31, 0)}),)}, "amount-out-of-range", "zones.0.cpu.total"),
    ],
)
def test_refused_pods_and_the_reasons(given, code, says):
    with pytest.raises(InvalidRequest) as refused:
        Topology(**{"zones": ZONES} | given)
    assert refused.value.code == code
    assert says in refused.value.message


def test_the_largest_possible_record():
    zones = tuple(Zone(id_, Room(MAX_ZONE_BYTES, MAX_ZONE_BYTES)) for id_ in range(64))
    assert Topology(zones).zone_ids == tuple(range(64))
    assert sum(zone.memory.total for zone in zones if zone.memory) < 2**63
    assert as_mask(range(64)) == -1


@pytest.mark.parametrize(
    ("reported", "zones"),
    [(1, (1,)), ([1, 0, 1], (0, 1)), (-1, ()), (64, ()), (None, ()), ("1", ()), (True, ()), ([0, -1, "x"], (0,))],
)
def test_an_invalid_zone_is_unknown_and_not_zone_0(reported, zones):
    assert zones_of(reported) == zones


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cpus": -1}, "containers.main.cpus: -1"),
        ({"devices": (("gpu", 2**31),)}, "containers.main.gpu"),
        ({"memory_bytes": 2**62 + 1}, "containers.main.memory_bytes"),
        ({"hugepages": ((2**21, -1),)}, "containers.main.hugepages.2097152: -1"),
    ],
)
def test_a_container_that_requests_too_much_is_refused(given, says):
    with pytest.raises(InvalidRequest) as refused:
        ContainerNeeds("main", **given)
    assert refused.value.code == "amount-out-of-range"
    assert says in refused.value.message


def test_more_containers_than_are_aligned_are_refused():
    with pytest.raises(InvalidRequest, match="at most 64"):
        Alignment(None, (ContainerNeeds(),) * (MAX_CONTAINERS + 1))
