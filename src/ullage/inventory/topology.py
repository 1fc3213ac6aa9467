"""The record of a machine's topology, from the values of the kernel and of NVML.

This module reads no files; `topology_reader.py` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, product

from ullage.inventory.kind import kind_of
from ullage.inventory.path import find_path
from ullage.inventory.pci import PciDevice
from ullage.inventory.zone import find_zones
from ullage.inventory.zone_record import ZoneRecord
from ullage.model.gpu import Gpu
from ullage.model.topology import MAX_ZONES, Device, Link, Path, Topology

SOURCE = "sysfs"

MAX_PAIRS = 1 << 16
"""The most pairs of devices whose path is reported; enough for 250 cards with 12 network adapters."""


def place_cards(cards: Sequence[Gpu], devices: Mapping[str, PciDevice], record: ZoneRecord | None) -> tuple[Gpu, ...]:
    """Return the cards with their zones; their previous `zones` are those of NVML.

    Without a record the kernel's zones of a device are used unchecked.
    """
    zones, zone_of_cpu = _zones(record)
    return tuple(replace(gpu, zones=find_zones(_at(gpu, devices), gpu.zones, zones, zone_of_cpu)) for gpu in cards)


def compose_topology(
    record: ZoneRecord,
    devices: Mapping[str, PciDevice],
    cards: Sequence[Gpu],
    nvlinks: Mapping[tuple[str, str], int],
    usable_cpus: Collection[int],
) -> Topology:
    """Return the record of a machine with `cards`, placed, and `devices` by address in their order.

    CPUs that are not `usable_cpus` are reserved: this process and its children cannot use them.
    """
    others = _other_devices(devices, record, cards)
    return Topology(
        zones=record.zones,
        distances=record.distances,
        cpus=record.cpus,
        devices=others,
        links=tuple(_links(cards, others, devices, nvlinks, one_zone=len(record.zones) == 1)),
        reserved_cpus=frozenset(cpu.id for cpu in record.cpus) - frozenset(usable_cpus),
        source=SOURCE,
    )


def _zones(record: ZoneRecord | None) -> tuple[Collection[int], Mapping[int, int]]:
    if record is None:
        return range(MAX_ZONES), {}
    return [zone.id for zone in record.zones], {cpu.id: cpu.zone for cpu in record.cpus if cpu.zone is not None}


def _at(end: Gpu | Device, devices: Mapping[str, PciDevice]) -> PciDevice | None:
    return None if end.bus_id is None else devices.get(end.bus_id)


def _other_devices(devices: Mapping[str, PciDevice], record: ZoneRecord, cards: Sequence[Gpu]) -> tuple[Device, ...]:
    """Return the devices of other resources than the node's cards that work may use, with an index per resource."""
    zones, zone_of_cpu = _zones(record)
    kinds = (kind_of(device) for card in cards if (device := _at(card, devices)) is not None)
    of_cards = {kind.resource for kind in kinds if kind is not None}
    counted: Counter[str] = Counter()
    found = []
    for address, device in devices.items():
        kind = kind_of(device)
        if kind is None or kind.listed or kind.resource in of_cards or device.virtual:
            continue
        near = find_zones(device, (), zones, zone_of_cpu)
        index = counted[kind.resource]
        found.append(Device(kind.resource, index, address, address, zones=near, model=device.name))
        counted[kind.resource] += 1
    return tuple(found)


def _links(
    cards: Sequence[Gpu],
    others: Sequence[Device],
    devices: Mapping[str, PciDevice],
    nvlinks: Mapping[tuple[str, str], int],
    *,
    one_zone: bool,
) -> Iterable[Link]:
    """Return the link of each card with every other card, then with every other device; unknown ones are left out."""
    pairs: Iterable[tuple[Gpu, Gpu | Device]] = chain(combinations(cards, 2), product(cards, others))
    for a, b in islice(pairs, MAX_PAIRS):
        one, other = _at(a, devices), _at(b, devices)
        path = Path.UNKNOWN
        if one is not None and other is not None:
            path = find_path((one, a.zones), (other, b.zones), one_zone=one_zone)
        bonded = nvlinks.get((a.uuid, b.uuid), 0)
        if bonded or path is not Path.UNKNOWN:
            yield Link(a.uuid, b.uuid, path, bonded)
