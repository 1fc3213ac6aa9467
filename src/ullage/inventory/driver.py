"""What the NVIDIA driver writes about its cards in /proc, which is there even when NVML does not answer.

Source: NVIDIA driver README, the /proc interface, /proc/driver/nvidia/gpus/ADDRESS/information.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ullage.inventory.files import list_names, read_text
from ullage.inventory.pci import MAX_DEVICES, kernel_address
from ullage.model.gpu import Gpu

_CARDS = "proc/driver/nvidia/gpus"
_LINE = re.compile(r"^(Model|GPU UUID):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DriverCard:
    """A card as the driver tells it: its PCI address as the kernel writes it, and its model."""

    address: str
    model: str | None


def read_driver(root: Path) -> dict[str, DriverCard]:
    """Return the cards that the driver has, by uuid. One that it has not started yet has no uuid, and is left out."""
    found = {}
    for name in list_names(root / _CARDS, MAX_DEVICES) or ():
        facts = dict(_LINE.findall(read_text(root / _CARDS / name / "information") or ""))
        address, uuid = kernel_address(name), facts.get("GPU UUID", "")
        if address is not None and uuid.startswith("GPU-") and "?" not in uuid:
            found[uuid] = DriverCard(address, facts.get("Model"))
    return found


def tell_place(gpu: Gpu, told: DriverCard | None) -> Gpu:
    """Return the card with its address and model, where only the driver knows them."""
    if told is None:
        return gpu
    return replace(gpu, bus_id=gpu.bus_id or told.address, model=gpu.model or told.model)
