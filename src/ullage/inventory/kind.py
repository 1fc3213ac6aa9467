"""The relevant kinds of PCI devices, from an extensible table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

from ullage.inventory.pci import PciDevice


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices of one resource; a vendor of None, and an empty set of `kinds` or `devices`, matches any.

    `listed` kinds are cards that the library of their driver lists. `card` means that the devices are cards; one whose
    class is in `adapters` may only drive a display.
    """

    resource: str
    vendor: int | None = None
    kinds: frozenset[int] = frozenset()
    devices: frozenset[int] = frozenset()
    listed: bool = False
    card: bool = False
    adapters: frozenset[int] = frozenset()

    def fits(self, device: PciDevice) -> bool:
        """Return whether `device` is of this kind."""
        return (
            self.vendor in (None, device.vendor)
            and (not self.kinds or device.kind in self.kinds)
            and (not self.devices or device.device in self.devices)
        )


def kind_of(device: PciDevice) -> DeviceKind | None:
    """Return the kind of a device; None if work cannot use it."""
    return next((kind for kind in SHIPPED if kind.fits(device)), None)


def load_kinds(text: str) -> tuple[DeviceKind, ...]:
    """Return the kinds of a table in TOML, in its order."""
    return tuple(
        DeviceKind(
            entry["resource"],
            entry.get("vendor"),
            frozenset(entry.get("kinds", ())),
            frozenset(entry.get("devices", ())),
            listed=entry.get("listed", False),
            card=entry.get("card", False),
            adapters=frozenset(entry.get("adapters", ())),
        )
        for entry in tomllib.loads(text)["device"]
    )


SHIPPED = load_kinds((files(__package__) / "devices.toml").read_text(encoding="utf-8"))
"""The kinds that come with Ullage."""
