"""Slices that are held for containers."""

import json

import pytest

from tests.wire.hami.pods import limits, pod
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.error import InvalidAnnotation
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.containers import container_asks
from ullage.wire.hami.mig import (
    RESERVATIONS,
    MigPlace,
    Reservation,
    encode_reservations,
    read_reservations,
    reservations_of,
)
from ullage.wire.hami.words import NVIDIA

SLICED = CardSelector(isolation=Isolation.PARTITIONED)


def allocation(*slots):
    gpus = tuple(f"GPU-{number}" for number in range(len(slots)))
    charges = tuple(Charge(1, 1, Isolation.PARTITIONED, slot) for slot in slots)
    asked = ResourceRequirement(0, 0, len(slots), Part(), SLICED)
    return Allocation("a", "n", asked, gpus, AllocationState.BOUND, charges)


def test_slices_are_reserved_by_container():
    asks = container_asks(pod({}, limits(gpu=1), limits(gpu=2), init=[limits(gpu=1)]), NVIDIA)
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
    assert read_reservations(encode_reservations(found)) == found


def test_ids_are_there_once_a_slice_is_made():
    one = Reservation(0, 0, "GPU-0", "1g.10gb", MigPlace(0, 1))
    made = Reservation(0, 0, "GPU-0", "1g.10gb", MigPlace(0, 1), "MIG-1", 0, 0)
    assert (one.made, made.made) == (False, True)
    written = encode_reservations((made,))
    assert (
        json.loads(written)[0] | {"migUUID": "MIG-1", "gpuInstanceID": 0, "computeInstanceID": 0}
        == json.loads(written)[0]
    )
    assert read_reservations(written) == (made,)


@pytest.mark.parametrize(
    "text",
    [
        *("x", "{}", "[{}]", "[3]", "[" * 99_999),
        encode_reservations((Reservation(0, 0, "g", "p", MigPlace(0, 1), "MIG-1"),)),
        encode_reservations((Reservation(0, 0, "g", "p", MigPlace(0, 1), None, 1, 2),)),
        encode_reservations((Reservation(0, 0, "g", "p", MigPlace(0, 1)),)).replace('"start":0', '"start":-1'),
        encode_reservations((Reservation(0, 0, "g", "p", MigPlace(0, 1)),) * 4097),
    ],
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(InvalidAnnotation) as caught:
        read_reservations(text)
    assert caught.value.field == RESERVATIONS
