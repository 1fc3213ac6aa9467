"""The zones of a device, from the first of four sources that has them.

The sources are the kernel's zone of the device, the kernel's zone of the nearest bridge above, the kernel's local CPUs,
and NVML. NVML comes last: if the memory of a card is a NUMA node without CPUs, NVML reports that node. Without a
source the zones are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ullage.inventory.pci import PciDevice
from ullage.model.topology import zones_of


def find_zones(
    device: PciDevice | None, reported: Sequence[int], zones: Collection[int], zone_of_cpu: Mapping[int, int]
) -> tuple[int, ...]:
    """Return the zones of a device, ascending; none if they are unknown. `reported` are those of NVML.

    `zones` are those of the machine; other zones are ignored. NVML is also ignored where it names a zone without CPUs,
    or all zones that have CPUs.
    """
    if device is not None:
        known = [zone for zone in device.kernel_zones if zone in zones]
        if known:
            return (known[0],)
        near = {zone_of_cpu.get(cpu) for cpu in device.local_cpus}
        if len(near) == 1 and None not in near:
            return zones_of(near)
    working = set(zone_of_cpu.values())
    return zones_of(reported) if set(reported) < working else ()
