"""The slices of each container of a pod: `hami.io/vgpu-mig-allocations`, written at bind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ullage.model.allocation import Allocation
from ullage.wire.hami.sharing import share_out
from ullage.wire.vendors.container_request import ContainerRequest


class MigPlace(msgspec.Struct, frozen=True):
    """Where a slice lies on its card, in slots."""

    start: int
    size: int


class Reservation(msgspec.Struct, frozen=True, rename="camel"):
    """A slice that is reserved for a container; HAMi's device plugin adds its ids when it makes the slice."""

    container_index: int
    device_index: int
    gpu_uuid: str = msgspec.field(name="gpuUUID")
    profile: str
    placement: MigPlace


def reservations_of(requests: Sequence[ContainerRequest], allocation: Allocation) -> tuple[Reservation, ...]:
    """Return the slices of the containers of a pod; none on cards of which it has no slice with a place."""
    slots = dict(zip(allocation.gpus, (charge.slot for charge in allocation.charges), strict=False))
    found = []
    for container, gpus in enumerate(share_out(requests, allocation.gpus)):
        for device, gpu in enumerate(gpus):
            slot = slots.get(gpu)
            if slot is not None and slot.start is not None and slot.end is not None:
                place = MigPlace(slot.start, slot.end - slot.start)
                found.append(Reservation(container, device, gpu, slot.template, placement=place))
    return tuple(found)


def encode_reservations(reservations: Sequence[Reservation]) -> str:
    return msgspec.json.encode(reservations).decode() if reservations else ""
