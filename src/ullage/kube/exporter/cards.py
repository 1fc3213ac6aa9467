"""The cards of a node: from NVML, else from NVIDIA's driver, else, for other vendors, from PCI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ullage.inventory.driver import read_driver
from ullage.inventory.nvlink import NvLinkEnd
from ullage.inventory.nvml import VENDOR, CardReader, CardsUnreadable
from ullage.inventory.pci import PciDevice, list_addresses, read_devices
from ullage.inventory.pci_cards import PCI_RESOURCES, PciCards, find_cards
from ullage.model.gpu import Gpu
from ullage.wire.vendors.shipped import NATIVE_RESOURCES

_NVIDIA = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class FoundCards:
    """The cards of a node at one check, and the resource by which the cluster requests them ("" if there are none).

    `reason` says why existing cards are missing here; "" if none are.
    """

    nvml: CardReader
    found: tuple[Gpu, ...] = ()
    resource: str = ""
    reason: str = ""

    def cards(self) -> tuple[Gpu, ...]:
        return self.found

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        """Return the NVLinks that NVML reports.

        Raises:
            CardsUnreadable: NVML does not answer.

        """
        return self.nvml.nvlinks()


class NodeCards:
    """Finds the cards of `node`, whose files are below `root`.

    `resource` is the resource name of the cards; "" stands for the usual name of the cards that are found. A resource
    in `PCI_RESOURCES` selects its cards, whatever other cards exist.
    """

    def __init__(self, nvml: CardReader, root: Path, node: str, resource: str = "") -> None:
        self._nvml, self._root, self._node, self._resource = nvml, root, node, resource
        self._addresses: tuple[str, ...] | None = None
        self._pci = PciCards()

    def look(self) -> FoundCards:
        listed = () if self._resource in PCI_RESOURCES else self._listed()
        if listed:
            return FoundCards(self._nvml, listed, self._resource or _NVIDIA)
        pci = self._on_bus()
        cards = tuple(self._card(pci.resource, index, device) for index, device in enumerate(pci.devices))
        reason = f"{pci.reason} by --card-resource" if pci.reason else ""
        return FoundCards(self._nvml, cards, self._resource or pci.resource, reason)

    def _listed(self) -> tuple[Gpu, ...]:
        """Return the cards that NVML lists. If it has never answered, return those of NVIDIA's driver in PCI order."""
        try:
            return self._nvml.cards()
        except CardsUnreadable:
            found = read_driver(self._root)
            return tuple(
                Gpu(uuid, index, model=found[uuid].model, vendor=VENDOR, bus_id=found[uuid].address)
                for index, uuid in enumerate(sorted(found, key=lambda uuid: found[uuid].address))
            )

    def _on_bus(self) -> PciCards:
        """Return the cards on the PCI bus, which is read again only after a device was added or removed."""
        addresses = list_addresses(self._root)
        if addresses is None:
            return PciCards(reason="the PCI devices cannot be listed; none is published")
        if addresses != self._addresses:
            wanted = self._resource if self._resource in PCI_RESOURCES else ""
            self._pci = find_cards(read_devices(self._root, addresses).values(), wanted)
            self._addresses = addresses
        return self._pci

    def _card(self, resource: str, index: int, device: PciDevice) -> Gpu:
        """Return a card. PCI has no uuid, so it is derived from the node and the PCI address."""
        uuid = f"{self._node}/pci-{device.address.replace(':', '-')}"
        return Gpu(uuid, index, device.name, NATIVE_RESOURCES.get(resource), bus_id=device.address)
