"""The zones that a device is near: of four sources, the first that knows one decides.

These are the kernel's word on the device, its word on the nearest bridge above, the CPUs that it calls
near, and NVML. NVML comes last: where a card's own memory is a NUMA node, a zone without CPUs, NVML names
that one. Where no source knows, the zone stays unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ullage.inventory.pci import PciDevice
from ullage.model.topology import zones_of


def find_zones(
    device: PciDevice | None, heard: Sequence[int], zones: Collection[int], zone_of_cpu: Mapping[int, int]
) -> tuple[int, ...]:
    """Zones of a device, ascending; none if they are unknown. `heard` is what NVML says.

    `zones` are those of the machine; a zone that is not among them is not believed. Nor is NVML where it
    names a zone without CPUs, or all zones that have CPUs.
    """
    if device is not None:
        told = [zone for zone in device.told_zones if zone in zones]
        if told:
            return (told[0],)
        near = {zone_of_cpu.get(cpu) for cpu in device.local_cpus}
        if len(near) == 1 and None not in near:
            return zones_of(near)
    working = set(zone_of_cpu.values())
    return zones_of(heard) if set(heard) < working else ()
