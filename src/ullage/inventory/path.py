"""The path between two PCI devices, with the names of `nvidia-smi topo -m`.

A switch appears as bridges: one port up, and one port down to each device. Two devices below one switch therefore have
one bridge each between them and the port they share.
"""

from __future__ import annotations

from ullage.inventory.pci import PciDevice, is_host_bridge
from ullage.model.topology import Path

Place = tuple[PciDevice, tuple[int, ...]]
"""A device and its zones."""


def find_path(one: Place, other: Place, *, one_zone: bool) -> Path:
    """Return the path of a copy between two devices; `one_zone` means that the machine has only one zone.

    Devices of one slot, or of one bus below a bridge, are on one board: a PCIe slot takes one device.
    """
    (a, zones_a), (b, zones_b) = one, other
    shared = _shared(a.parents, b.parents)
    if not shared:
        return _between_host_bridges(zones_a, zones_b, one_zone=one_zone)
    if a.slot == b.slot:
        return Path.BOARD
    if is_host_bridge(a.parents[shared - 1]):
        return Path.PHB
    bridges = max(len(a.parents), len(b.parents)) - shared
    if not bridges:
        return Path.BOARD
    return Path.PIX if bridges == 1 else Path.PXB


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many bridges, from the host bridge down, are above both."""
    same = 0
    for above, its in zip(one, other, strict=False):
        if above != its:
            break
        same += 1
    return same


def _between_host_bridges(one: tuple[int, ...], other: tuple[int, ...], *, one_zone: bool) -> Path:
    if one_zone or set(one) & set(other):
        return Path.NODE
    return Path.SYS if one and other else Path.UNKNOWN
