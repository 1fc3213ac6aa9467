"""The slices of each container of a pod: `hami.io/vgpu-mig-allocations`, written at bind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ullage.model.allocation import Allocation
from ullage.model.error import invalid_annotation
from ullage.model.quantity import MAX_INT32
from ullage.wire.hami.ask import ContainerAsk
from ullage.wire.hami.sharing import share_out
from ullage.wire.hami.words import ANNOTATIONS

RESERVATIONS = f"{ANNOTATIONS}/vgpu-mig-allocations"

_MOST = 4096
_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]


class MigPlace(msgspec.Struct, frozen=True):
    """Where a slice lies on its card, in slots."""

    start: _Number
    size: _Number


class Reservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A slice that is reserved for a container; the three ids are set once the slice exists."""

    container_index: _Number
    device_index: _Number
    gpu_uuid: str = msgspec.field(name="gpuUUID")
    profile: str
    placement: MigPlace
    mig_uuid: str | None = msgspec.field(name="migUUID", default=None)
    gpu_instance_id: _Number | None = msgspec.field(name="gpuInstanceID", default=None)
    compute_instance_id: _Number | None = msgspec.field(name="computeInstanceID", default=None)

    @property
    def made(self) -> bool:
        """Whether the slice exists."""
        return self.mig_uuid is not None


def reservations_of(asks: Sequence[ContainerAsk], allocation: Allocation) -> tuple[Reservation, ...]:
    """Return the slices of the containers of a pod; none on cards of which it has no slice with a place."""
    slots = dict(zip(allocation.gpus, (charge.slot for charge in allocation.charges), strict=False))
    found = []
    for container, gpus in enumerate(share_out(asks, allocation.gpus)):
        for device, gpu in enumerate(gpus):
            slot = slots.get(gpu)
            if slot is not None and slot.start is not None and slot.end is not None:
                place = MigPlace(slot.start, slot.end - slot.start)
                found.append(Reservation(container, device, gpu, slot.template, placement=place))
    return tuple(found)


def encode_reservations(reservations: Sequence[Reservation]) -> str:
    """Return the reservations as JSON."""
    return msgspec.json.encode(reservations).decode()


def read_reservations(text: str, *, key: str = RESERVATIONS) -> tuple[Reservation, ...]:
    """Return the reservations of a pod.

    Raises:
        InvalidAnnotation: they cannot be read, are too many, or a slice has only some of its ids.

    """
    try:
        found = msgspec.json.decode(text, type=tuple[Reservation, ...])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise invalid_annotation(key, text, f"it cannot be read: {error}") from None
    except RecursionError:
        raise invalid_annotation(key, text, "it is nested too deeply") from None
    if len(found) > _MOST:
        raise invalid_annotation(key, f"{len(found)} slices", f"at most {_MOST} are read")
    for each in found:
        ids = (each.mig_uuid, each.gpu_instance_id, each.compute_instance_id)
        if len({one is None for one in ids}) > 1:
            raise invalid_annotation(key, text, "a slice that was made has all three ids, one that was not has none")
    return found
