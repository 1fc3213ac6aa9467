"""Slices that are reserved for containers."""

import json

import pytest

from tests.wire.hami.pods import limits, pod
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.error import InvalidAnnotation
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.mig import (
    Reservation,
    decode_reservations,
    encode_reservations,
    keeps_slices,
    reservations_of,
    without_ids,
)
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.mig_profiles import MigPlace
from ullage.wire.vendors.shipped import NVIDIA

SLICED = CardSelector(isolation=Isolation.PARTITIONED)


def allocation(*slots):
    gpus = tuple(f"GPU-{number}" for number in range(len(slots)))
    charges = tuple(Charge(1, 1, Isolation.PARTITIONED, slot) for slot in slots)
    asked = ResourceRequirement(0, 0, len(slots), Part(), SLICED)
    return Allocation("a", "n", asked, gpus, AllocationState.BOUND, charges)


def test_slices_are_reserved_by_container():
    asks = container_requests(pod({}, limits(gpu=1), limits(gpu=2), init=[limits(gpu=1)]), NVIDIA)
    found = reservations_of(asks, allocation(Slot("1g.10gb", 6, 7), Slot("3g.40gb", 4, 8), Slot("plain")))
    assert found == (
        Reservation(0, 0, "GPU-0", "1g.10gb", MigPlace(6, 1)),
        Reservation(2, 0, "GPU-0", "1g.10gb", MigPlace(6, 1)),
        Reservation(3, 0, "GPU-1", "3g.40gb", MigPlace(4, 4)),
    )
    assert json.loads(encode_reservations(found))[1] == {
        "containerIndex": 2,
        "deviceIndex": 0,
        "gpuUUID": "GPU-0",
        "profile": "1g.10gb",
        "placement": {"start": 6, "size": 1},
    }


WRITTEN = (
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-1","profile":"2g.20gb","placement":{"start":2,"size":2}},'
    '{"containerIndex":1,"deviceIndex":0,"gpuUUID":"GPU-1","profile":"1g.10gb","placement":{"start":6,"size":1},'
    '"migUUID":"MIG-1","gpuInstanceID":9,"computeInstanceID":0}]'
)


def test_the_ids_of_the_plugin_are_kept():
    plain, made = decode_reservations(WRITTEN)
    assert (plain.slot, plain.ids) == (Slot("2g.20gb", 2, 4), ())
    assert (made.slot, made.ids) == (Slot("1g.10gb", 6, 7), ("MIG-1", 9, 0))
    assert encode_reservations((plain, made)) == WRITTEN
    ids = ',"migUUID":"MIG-1","gpuInstanceID":9,"computeInstanceID":0'
    assert without_ids(WRITTEN) == WRITTEN.replace(ids, "")
    assert without_ids("nothing to read") == "nothing to read"
    assert decode_reservations("") == decode_reservations("null") == ()


def changed(**more):
    return json.dumps([json.loads(WRITTEN)[0] | more])


@pytest.mark.parametrize(
    "written",
    [
        "{}",
        "[1]",
        "[{}]",
        changed(containerIndex=-1),
        changed(gpuUUID=""),
        changed(profile=""),
        changed(placement={"start": 0, "size": 0}),
        changed(placement={"start": 2**40, "size": 1}),
        changed(migUUID="MIG-1"),
        changed(migUUID="MIG-1", gpuInstanceID=1),
        changed(gpuInstanceID=1, computeInstanceID=0),
        json.dumps(json.loads(WRITTEN)[:1] * 2),
        "[" * 100_000,
    ],
)
def test_incomplete_reservations_are_refused(written):
    with pytest.raises(InvalidAnnotation, match="vgpu-mig-allocations"):
        decode_reservations(written)


def test_a_slice_stays_where_it_is():
    plain = without_ids(WRITTEN)
    assert keeps_slices(plain, WRITTEN), "ids are added"
    assert not keeps_slices(WRITTEN, plain), "ids are taken away"
    assert not keeps_slices(WRITTEN, WRITTEN.replace('"MIG-1"', '"MIG-2"'))
    assert not keeps_slices(plain, plain.replace('"start":6', '"start":5'))
    assert not keeps_slices(plain, "")
    assert keeps_slices("unreadable", plain)


def test_several_slices_of_one_card_go_to_its_containers():
    asks = container_requests(pod({}, limits(gpu=1), limits(gpu=2)), NVIDIA)
    slots = Slot("1g.10gb", 6, 7), Slot("1g.10gb", 5, 6), Slot("2g.20gb", 0, 2)
    charge = Charge(3, 3, Isolation.PARTITIONED, slots[0], further=slots[1:])
    one = Allocation("a", "n", ResourceRequirement(0, 0, 1, Part(), SLICED), ("GPU-0",), charges=(charge,))
    assert [(each.container_index, each.device_index, each.slot) for each in reservations_of(asks, one)] == [
        (1, 0, slots[0]),
        (2, 0, slots[1]),
        (2, 1, slots[2]),
    ]
