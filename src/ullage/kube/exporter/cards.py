"""The cards of a node: as NVML lists them, else as their driver does, which needs no library in the container."""

from __future__ import annotations

from pathlib import Path

from ullage.inventory.driver import read_driver
from ullage.inventory.nvlink import NvLinkEnd
from ullage.inventory.nvml import VENDOR, CardReader, CardsUnreadable
from ullage.model.gpu import Gpu


class NodeCards:
    """The cards that `nvml` lists; where it has never answered, those of the driver below `root`, in PCI order."""

    def __init__(self, nvml: CardReader, root: Path) -> None:
        self._nvml, self._root = nvml, root

    def cards(self) -> tuple[Gpu, ...]:
        """All cards of the node.

        Raises:
            CardsUnreadable: neither NVML nor the driver tells of any.

        """
        try:
            return self._nvml.cards()
        except CardsUnreadable:
            told = sorted(read_driver(self._root).items(), key=lambda pair: pair[1].address)
            if not told:
                raise
            return tuple(
                Gpu(uuid, index, model=card.model, vendor=VENDOR, bus_id=card.address)
                for index, (uuid, card) in enumerate(told)
            )

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        """As NVML tells them.

        Raises:
            CardsUnreadable: it does not.

        """
        return self._nvml.nvlinks()
