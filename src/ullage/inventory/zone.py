"""The NUMA zone a PCI device hangs on, as the kernel tells it in sysfs.

NVML is not asked: its nvmlDeviceGetNumaNodeId "only applies to platforms where the GPUs are NUMA
nodes" and there names the card's own memory, a zone without processors, not the zone beside it.
"""

from __future__ import annotations

from pathlib import Path


def read_zone(root: Path, bus_id: str) -> int | None:
    """Zone of the device at `bus_id` (`0000:3b:00.0`), else of the nearest bridge above it, else None.

    Firmware may leave a device without a zone (-1) and still give one to the bridge it sits behind.
    """
    device = (root / "sys/bus/pci/devices" / bus_id).resolve()
    for place in (device, *device.parents):
        try:
            zone = int((place / "numa_node").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None  # above the last bridge, or no such device
        if zone >= 0:
            return zone
    return None


def kernel_bus_id(bus_id: str) -> str:
    """NVML's `00000000:3B:00.0` as sysfs and lspci write it: `0000:3b:00.0`."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
