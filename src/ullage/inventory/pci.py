"""PCI devices and the bridges above them, from sysfs.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci. A device is a link into /sys/devices, whose directories
are nested as the bridges are: `pci0000:3a/0000:3a:00.0/0000:3b:00.0` is below a port of the host bridge `pci0000:3a`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ullage.inventory.files import list_names, read_number, read_text
from ullage.inventory.zone_record import MAX_CPUS
from ullage.model.error import InvalidRequest
from ullage.model.idset import parse_ids

MAX_DEVICES = 4096
"""PCI devices of a machine; if there are more, none is read."""

_DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device at `address` (`0000:3b:00.0`) with its numbers; `kind` is the class code, 24 bits.

    `parents` are the bridges above it, from the host bridge down. `kernel_zones` are the zones that the kernel reports
    for it and for the bridges above it, nearest first. `local_cpus` are the CPUs near it. A `virtual` device is an
    SR-IOV function of another device.
    """

    address: str
    vendor: int
    device: int
    kind: int
    parents: tuple[str, ...] = ()
    kernel_zones: tuple[int, ...] = ()
    local_cpus: tuple[int, ...] = ()
    virtual: bool = False

    @property
    def name(self) -> str:
        """Vendor and device, such as `15b3:1021`, which need no driver."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def slot(self) -> str:
        """The address without the function: functions of one slot are one piece of hardware."""
        return self.address.rpartition(".")[0]


def list_addresses(root: Path) -> tuple[str, ...] | None:
    """Return the addresses of all devices, ascending; None if they cannot be listed or are too many."""
    names = list_names(root / _DEVICES, MAX_DEVICES)
    if names is None:
        return None if (root / _DEVICES).is_dir() else ()
    return tuple(sorted(filter(_ADDRESS.fullmatch, names), key=address_order))


def address_order(address: str) -> tuple[int, ...]:
    """Return the sort key of an address: domain, bus, slot, function as numbers."""
    match = _ADDRESS.fullmatch(address)
    assert match is not None, "an address of sysfs"
    return tuple(int(part, 16) for part in match.groups())


def read_devices(root: Path, addresses: Iterable[str]) -> dict[str, PciDevice]:
    """Return the devices by address, without those that lack their ids."""
    found = (_read_device(root, address) for address in addresses)
    return {device.address: device for device in found if device is not None}


def is_host_bridge(parent: str) -> bool:
    """Return whether one of `parents` is the host bridge, the root of a PCI hierarchy."""
    return _HOST_BRIDGE.fullmatch(parent) is not None


def kernel_address(bus_id: str) -> str | None:
    """Return NVML's `00000000:3B:00.0` in the form of sysfs and lspci: `0000:3b:00.0`; None if it is malformed."""
    domain, _, rest = bus_id.lower().partition(":")
    address = f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
    return address if _ADDRESS.fullmatch(address) else None


def _read_device(root: Path, address: str) -> PciDevice | None:
    link = root / _DEVICES / address
    vendor, device, kind = (read_number(link / name) for name in ("vendor", "device", "class"))
    if vendor is None or device is None or kind is None:
        return None
    try:
        place = link.resolve()
    except (OSError, RuntimeError):  # a cycle of links
        return None
    bridges = [above for above in place.parents if is_host_bridge(above.name) or _ADDRESS.fullmatch(above.name)]
    zones = (read_number(where / "numa_node") for where in (place, *bridges))
    return PciDevice(
        address,
        vendor,
        device,
        kind,
        parents=tuple(bridge.name for bridge in reversed(bridges)),
        kernel_zones=tuple(zone for zone in zones if zone is not None and zone >= 0),
        local_cpus=_local_cpus(link),
        virtual=(link / "physfn").exists(),
    )


def _local_cpus(link: Path) -> tuple[int, ...]:
    try:
        return parse_ids(read_text(link / "local_cpulist"), "local_cpulist", most=MAX_CPUS - 1)
    except InvalidRequest:  # not a set of CPUs: nothing is known
        return ()
