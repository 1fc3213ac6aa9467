"""The NVIDIA driver's files about its cards in /proc, which exist even when NVML does not answer.

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
    """A card as the driver reports it: its PCI address in the kernel's form, and its model."""

    address: str
    model: str | None


def read_driver(root: Path) -> dict[str, DriverCard]:
    """Return the driver's cards by uuid. A card that it has not started yet has no uuid, and is left out."""
    found = {}
    for name in list_names(root / _CARDS, MAX_DEVICES) or ():
        facts = dict(_LINE.findall(read_text(root / _CARDS / name / "information") or ""))
        address, uuid = kernel_address(name), facts.get("GPU UUID", "")
        if address is not None and uuid.startswith("GPU-") and "?" not in uuid:
            found[uuid] = DriverCard(address, facts.get("Model"))
    return found


def with_driver_facts(gpu: Gpu, reported: DriverCard | None) -> Gpu:
    """Return the card with the driver's address and model, if it has none."""
    if reported is None:
        return gpu
    return replace(gpu, bus_id=gpu.bus_id or reported.address, model=gpu.model or reported.model)
