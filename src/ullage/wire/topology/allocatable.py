"""What a kubelet says that pods may have, entered in the record of its machine.

The kubelet knows which CPUs and how much memory its managers keep, and the devices of all plugins with their zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ullage.model.gpu import Gpu
from ullage.model.holding import MemoryHolding
from ullage.model.provider import pages_of
from ullage.model.topology import MEMORY, Device, Room, Topology, Zone
from ullage.wire.topology.device_ids import names_of
from ullage.wire.topology.podresources import Allocatable

_MOST_DEVICES = 4096
"""The most devices of one machine that are added to a record."""


def with_allocatable(
    topology: Topology, cards: tuple[Gpu, ...], card_resource: str, allocatable: Allocatable
) -> tuple[Topology, tuple[Gpu, ...]]:
    """Return the topology and the cards of a machine, completed by what its kubelet says; `zones` are known to it.

    CPUs that pods may not have are reserved by id; without any CPU, as where the CPU manager is off, nothing is said
    of them. Zones of cards and devices are taken where the machine does not state them. Devices of resources that the
    machine does not list are added with the ids of their plugin.
    """
    known = set(topology.zone_ids)
    if allocatable.cpus:
        kept = frozenset(cpu.id for cpu in topology.cpus) - set(allocatable.cpus)
        topology = replace(topology, reserved_cpus=kept, reserved_count=0)
    devices = _devices(topology.devices, cards, card_resource, allocatable.devices, known=known)
    zones = tuple(_zone(zone, allocatable.memory) for zone in topology.zones)
    places = allocatable.devices.get(card_resource, {})
    found = tuple(replace(card, zones=card.zones or _zones(card_resource, card, places, known)) for card in cards)
    return replace(topology, zones=zones, devices=devices), found


def _zones(resource: str, end: Gpu | Device, places: Mapping[str, tuple[int, ...]], known: set[int]) -> tuple[int, ...]:
    """Return the zones that the kubelet has for a card or a device, by any of its names."""
    found = next((places[name] for name in (end.uuid, *names_of(resource, end)) if name in places), ())
    return tuple(zone for zone in found if zone in known)


def _devices(
    devices: tuple[Device, ...],
    cards: Iterable[Gpu],
    card_resource: str,
    zones_of: Mapping[str, Mapping[str, tuple[int, ...]]],
    *,
    known: set[int],
) -> tuple[Device, ...]:
    own = [
        replace(each, zones=each.zones or _zones(each.resource, each, zones_of.get(each.resource, {}), known))
        for each in devices
    ]
    listed = {each.resource for each in devices} | {card_resource}
    uuids = {card.uuid for card in cards}
    for resource in sorted(zones_of.keys() - listed):
        ids = sorted(id_ for id_ in zones_of[resource] if id_.partition("::")[0] not in uuids)
        own += [
            Device(resource, index, id_, zones=tuple(zone for zone in zones_of[resource][id_] if zone in known))
            for index, id_ in enumerate(ids[: max(0, _MOST_DEVICES - len(own))])
        ]
    return tuple(own)


def _zone(zone: Zone, memory: Iterable[MemoryHolding]) -> Zone:
    """Return a zone with the memory and huge pages that the kubelet may hand out of it; unchanged if it has none."""
    stated: dict[str, int] = {}
    for block in memory:
        if block.zones == (zone.id,):
            stated[block.kind] = stated.get(block.kind, 0) + block.amount_bytes
    pages = {size: _at_most(room, stated.get(pages_of(size))) for size, room in zone.hugepages.items()}
    return replace(zone, memory=zone.memory and _at_most(zone.memory, stated.get(MEMORY)), hugepages=pages)


def _at_most(room: Room, allocatable: int | None) -> Room:
    return room if allocatable is None else replace(room, allocatable=min(room.total, allocatable))
