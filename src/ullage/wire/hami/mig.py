"""The slices of each container of a pod: `hami.io/vgpu-mig-allocations`, written at bind.

HAMi's device plugin makes each slice when its container starts, and adds three ids: all of them, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import structs

from ullage.model.allocation import Allocation, Slot
from ullage.model.error import InvalidRequest, invalid_annotation
from ullage.model.name import MAX_NAME
from ullage.model.quantity import MAX_INT32
from ullage.wire.document import Document, section, text
from ullage.wire.hami.sharing import card_units, share_out
from ullage.wire.vendors.annotation import decoded
from ullage.wire.vendors.container_request import ContainerRequest
from ullage.wire.vendors.family import ANNOTATIONS
from ullage.wire.vendors.mig_profiles import MigPlace

MIG_ALLOCATIONS = f"{ANNOTATIONS}/vgpu-mig-allocations"

_MOST = 4096
"""The most reservations of one pod that are read."""

_Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]


class Reservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A slice that is reserved for a container. HAMi's device plugin adds the last three fields when it is made."""

    container_index: _Index
    device_index: _Index
    gpu_uuid: _Name = msgspec.field(name="gpuUUID")
    profile: _Name
    placement: MigPlace
    mig_uuid: str = msgspec.field(name="migUUID", default="")
    gpu_instance_id: _Index | None = msgspec.field(name="gpuInstanceID", default=None)
    compute_instance_id: _Index | None = msgspec.field(name="computeInstanceID", default=None)

    @property
    def slot(self) -> Slot:
        return Slot(self.profile, self.placement.start, self.placement.start + self.placement.size)

    @property
    def place(self) -> tuple[object, ...]:
        """What the scheduler reserved; it never changes."""
        return self.container_index, self.device_index, self.gpu_uuid, self.profile, self.placement

    @property
    def ids(self) -> tuple[object, ...]:
        """The ids that the plugin has added; none before that."""
        ids = self.mig_uuid or None, self.gpu_instance_id, self.compute_instance_id
        return tuple(each for each in ids if each is not None)


_NO_IDS: Mapping[str, Any] = {"mig_uuid": "", "gpu_instance_id": None, "compute_instance_id": None}


def reservations_of(requests: Sequence[ContainerRequest], allocation: Allocation) -> tuple[Reservation, ...]:
    """Return the slices of the containers of a pod; none on cards of which it has no slice with a place."""
    charges = dict(zip(allocation.gpus, allocation.charges, strict=False))
    found = []
    for container, units in enumerate(share_out(requests, card_units(allocation.gpus, charges))):
        for device, (gpu, slot) in enumerate(units):
            if slot is not None and slot.start is not None and slot.end is not None:
                place = MigPlace(slot.start, slot.end - slot.start)
                found.append(Reservation(container, device, gpu, slot.template, placement=place))
    return tuple(found)


def encode_reservations(reservations: Sequence[Reservation]) -> str:
    return msgspec.json.encode(reservations).decode() if reservations else ""


def decode_reservations(written: str, *, key: str = MIG_ALLOCATIONS) -> tuple[Reservation, ...]:
    """Return the slices of a pod.

    Raises:
        InvalidAnnotation: they cannot be read, a device has two slices, or only some of the ids of a slice are there.

    """
    if not written.strip():
        return ()
    found: list[Reservation] | None = decoded(written, list[Reservation] | None, key)
    reservations = tuple(found or ())
    if len(reservations) > _MOST:
        raise invalid_annotation(key, f"{len(reservations)} slices", f"at most {_MOST} slices of one pod are read")
    if len({(each.container_index, each.device_index) for each in reservations}) != len(reservations):
        raise invalid_annotation(key, written, "each device has one slice")
    if any(len(each.ids) not in (0, len(_NO_IDS)) for each in reservations):
        raise invalid_annotation(key, written, "a slice has migUUID, gpuInstanceID and computeInstanceID, or none")
    return reservations


def readable_reservations(pod: Document) -> tuple[Reservation, ...]:
    """Return the slices of a pod; none where they cannot be read."""
    try:
        return decode_reservations(text(section(pod, "metadata", "annotations").get(MIG_ALLOCATIONS)))
    except InvalidRequest:
        return ()


def without_ids(written: str) -> str:
    """Return reservations as they were before the plugin made the slices; unreadable ones as they are."""
    try:
        reservations = decode_reservations(written)
    except InvalidRequest:
        return written
    return encode_reservations([structs.replace(each, **_NO_IDS) for each in reservations])


def keeps_slices(before: object, after: object) -> bool:
    """Return whether a change leaves all slices of a pod where they are, and all ids that they have."""
    try:
        had = {each.place: each.ids for each in decode_reservations(text(before))}
    except InvalidRequest:
        return True  # they say nothing
    try:
        has = {each.place: each.ids for each in decode_reservations(text(after))}
    except InvalidRequest:
        return False
    return has.keys() == had.keys() and all(ids in ((), has[place]) for place, ids in had.items())
