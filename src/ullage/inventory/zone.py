"""The zones a device is near to: the first of four sources that knows one decides.

The kernel's word on the device, then on the nearest bridge above it, then the CPUs it calls near, then
what NVML says. NVML comes last: where cards are NUMA nodes themselves, it names the card's own memory, a
zone without processors. Where nobody knows, the zone stays unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ullage.inventory.pci import PciDevice
from ullage.model.topology import zones_of


def find_zones(
    device: PciDevice | None, heard: Sequence[int], zones: Collection[int], zone_of_cpu: Mapping[int, int]
) -> tuple[int, ...]:
    """Zones of a device, ascending; none: unknown. `heard` is what NVML says.

    `zones` are those of the machine, with `zone_of_cpu`. A zone that is not among them says nothing, nor
    does a set of all that have processors.
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
