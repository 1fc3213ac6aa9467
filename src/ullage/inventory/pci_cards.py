"""The cards of a machine from the PCI bus, for vendors without a library that lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.inventory.kind import SHIPPED, kind_of
from ullage.inventory.pci import PciDevice

PCI_RESOURCES = frozenset(kind.resource for kind in SHIPPED if kind.card and not kind.listed)
"""Resources whose cards are found on the PCI bus."""


@dataclass(frozen=True, slots=True)
class PciCards:
    """The cards of one resource in the order of their addresses; `reason` explains missing cards."""

    resource: str = ""
    devices: tuple[PciDevice, ...] = ()
    reason: str = ""


def find_cards(devices: Iterable[PciDevice], resource: str = "") -> PciCards:
    """Return the cards of `resource`, one of `PCI_RESOURCES`; for "", those of the only resource with cards.

    A display adapter is a card only if the machine has no other card of its resource and no card of a vendor whose
    library lists cards. SR-IOV functions of other devices are not cards.
    """
    found = _by_resource(devices)
    if resource:
        return PciCards(resource, found.get(resource, ()))
    if len(found) > 1:
        names = " and ".join(sorted(found))
        return PciCards(reason=f"the machine has cards of {names}; name one of these to publish its cards")
    return next((PciCards(name, cards) for name, cards in found.items() if name in PCI_RESOURCES), PciCards())


def _by_resource(devices: Iterable[PciDevice]) -> Mapping[str, tuple[PciDevice, ...]]:
    cards: defaultdict[str, list[PciDevice]] = defaultdict(list)
    adapters: defaultdict[str, list[PciDevice]] = defaultdict(list)
    for device in devices:
        kind = kind_of(device)
        if kind is None or not kind.card or device.virtual:
            continue
        (adapters if device.kind in kind.adapters else cards)[kind.resource].append(device)
    if cards.keys() <= PCI_RESOURCES:
        for resource, only in adapters.items():
            cards[resource] = cards[resource] or only
    return {resource: tuple(each) for resource, each in cards.items()}
