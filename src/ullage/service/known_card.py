"""Which card a device of a driver is, or is part of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.model.card_driver import CardDriver
from ullage.model.slice_device import Pool, SliceDevice


@dataclass(frozen=True, slots=True)
class KnownCard:
    """The card that a device is, or is part of."""

    uuid: str
    whole: bool


def known_card(device: SliceDevice, pool: Pool, drivers: Iterable[CardDriver]) -> KnownCard | None:
    """Return the card by the device's own word, or because another device of its pool lies at the same address."""
    for driver in drivers:
        if driver.is_card(device):
            return KnownCard(driver.gpu(device, 0).uuid, not device.shareable)
        if parent := driver.parent_of(device):
            return KnownCard(parent, whole=False)
        if device.driver == driver.driver and device.bus_id:
            for other in pool.devices:
                if other.bus_id == device.bus_id and other.node == device.node and driver.is_card(other):
                    return KnownCard(driver.gpu(other, 0).uuid, whole=False)
    return None
