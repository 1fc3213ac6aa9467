"""Slices that are reserved for containers."""

import json

from tests.wire.hami.pods import limits, pod
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.mig import (
    MigPlace,
    Reservation,
    encode_reservations,
    reservations_of,
)
from ullage.wire.vendors.containers import container_requests
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
