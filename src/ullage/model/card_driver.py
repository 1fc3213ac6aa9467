"""How a driver reports cards among its devices: the attributes and their meaning."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.gpu import Gpu
from ullage.model.resources import MILLI
from ullage.model.slice_device import SliceDevice, ValueKind
from ullage.model.topology import zones_of


@dataclass(frozen=True, slots=True)
class CardDriver:
    """The attributes of one driver by name; a name without a domain is in the driver's own.

    A device is a whole card if its attribute `kind` is `card` (with no `kind`: if it has an uuid and no `parent`).
    Another is part of the card whose uuid its `parent` names, or that lies at the same address. `zone` has the NUMA
    node of a card that does not report it under a known name. Cards with the same value of `island` are joined by
    NVLink, or by what their vendor has in its place.
    """

    driver: str = "gpu.nvidia.com"
    vendor: str = "NVIDIA"
    kind: str = "type"
    card: str = "gpu"
    uuid: str = "uuid"
    parent: str = "parentUUID"
    model: str = "productName"
    memory: str = "memory"
    zone: str = ""
    island: str = ""

    def is_card(self, device: SliceDevice) -> bool:
        """Return whether the device is a whole card of a node."""
        if device.driver != self.driver or not device.node or not device.text(self.uuid):
            return False
        return device.text(self.kind) == self.card if self.kind else not device.text(self.parent)

    def parent_of(self, device: SliceDevice) -> str:
        """Return the uuid of the card that the device is part of, as it reports; "" if it does not."""
        return device.text(self.parent) if device.driver == self.driver else ""

    def gpu(self, device: SliceDevice, index: int) -> Gpu:
        """Return the card of a device, without its taints: claims tolerate those, and the ledger has none."""
        memory = device.capacity.get(device.qualified(self.memory))
        return Gpu(
            device.text(self.uuid),
            index,
            device.text(self.model) or None,
            self.vendor,
            vram_bytes=None if memory is None else memory.amount // MILLI,
            zones=device.zones or self._zones(device),
            bus_id=device.bus_id,
        )

    def _zones(self, device: SliceDevice) -> tuple[int, ...]:
        zone = device.attributes.get(device.qualified(self.zone)) if self.zone else None
        return zones_of(zone.values) if zone is not None and zone.kind is ValueKind.INT else ()


NVIDIA = CardDriver()


def device_sort_key(device: SliceDevice) -> tuple[int, str, str]:
    """Return the sort key of a card on its node: its own number, else its address, else its name."""
    number = device.attributes.get(device.qualified("index")) or device.attributes.get(device.qualified("minor"))
    known = number is not None and number.kind is ValueKind.INT and not number.listed
    return int(number.values[0]) if number is not None and known else -1, device.bus_id or "", device.name
