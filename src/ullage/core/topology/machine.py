"""One machine as rows of a board: its zones, their distances, and its supplies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel import board as at
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.masks import MOST_ZONES
from ullage.core.topology.cpus import groups_of, mark_broken_cores, reserve, threads_of
from ullage.core.topology.resources import ZoneResources
from ullage.core.topology.rules import WidthRule, ZoneRules
from ullage.model.node import Node
from ullage.model.provider import pages_of
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, CPU, MAX_ZONES, CardPicker, Topology, Zone, as_mask

_NO_GROUPS = (0,) * (at.SUPPLY_COLUMNS - at.OUTER)
"""The groups of a supply that is no CPU."""

_AMOUNT = (*_NO_GROUPS[: at.CORE - at.OUTER], -1, *_NO_GROUPS[at.CORE - at.OUTER + 1 :])
"""The groups of an amount that is counted in a zone and has no ids."""


_LOWEST = CardPicker.LOWEST
_PICKERS = {_LOWEST: at.LOWEST, CardPicker.PARTITION: at.BY_PARTITION, CardPicker.NAMED: at.NAMED}


class InZone(NamedTuple):
    """The key of an amount of a zone, which equals no id."""

    id: int


def topology_of(node: Node) -> Topology | None:
    """Return the record of a node, or one made from the zones of its cards.

    A record without zones is used for its links, unless a device plugin decides that ignores them.
    """
    reported = node.topology
    if reported is not None and reported.zones:
        return reported
    zones = sorted({zone for gpu in node.gpus for zone in gpu.zones if zone < MAX_ZONES})
    follows_links = reported is not None and (reported.kubelet is None or reported.kubelet.picks is not _LOWEST)
    links = reported.links if reported is not None and follows_links else ()
    if zones:
        return Topology(tuple(map(Zone, zones)), links=links, source="cards")
    return reported if links else None


def machine_row(topology: Topology, rules: ZoneRules, first: int, last: int, far: int, counted: bool) -> list[int]:
    """Return the row of a machine: its supplies are from `first` to before `last`, its distances from `far` on.

    If `counted`, only the number of cards in each zone is known.
    """
    kubelet = topology.kubelet
    compared = kubelet is not None and kubelet.closest and topology.distances and len(topology.zones) <= MOST_ZONES
    return [
        len(topology.zones),
        first,
        last,
        -1 if kubelet is None else kubelet.policy.rank,
        kubelet is not None and kubelet.scope == "pod",
        kubelet is not None and kubelet.static_cpus,
        kubelet is not None and kubelet.static_memory,
        far if compared or (kubelet is None and topology.distances and len(topology.zones) <= MOST_ZONES) else -1,
        rules.width_on(topology) is WidthRule.KUBELET,
        threads_of(topology.cpus) if kubelet is not None and kubelet.whole_cores else 0,
        counted,
        at.NAMED if kubelet is None else _PICKERS[kubelet.picks],
    ]


def distances_of(topology: Topology) -> Rows:
    """Return a row per zone with its distances to each; none if they are unknown, or zones are too many."""
    count = len(topology.distances)
    if not count or count > MOST_ZONES:
        return np.zeros((0, MOST_ZONES), np.int64)
    rows = np.zeros((count, MOST_ZONES), np.int64)
    rows[:, :count] = topology.distances
    return rows


def supplies_of(node: Node, topology: Topology, resources: ZoneResources) -> tuple[Rows, list[tuple[int, object]]]:
    """Return the supplies of a machine, CPUs first, each with the key it is found by."""
    zones = topology.zone_ids
    place = {zone: as_mask([number]) for number, zone in enumerate(zones)} | {None: 0}
    cpus = sorted(topology.cpus, key=lambda cpu: cpu.id)
    rows: list[tuple[int, ...]] = [
        (at.CPUS, place[cpu.zone], 1, int(cpu.id not in topology.reserved_cpus), cpu.id, *groups, 1)
        for cpu, groups in zip(cpus, groups_of(cpus), strict=True)
    ]
    names: list[tuple[int, object]] = [(at.CPUS, cpu.id) for cpu in cpus]
    for device in sorted(topology.devices, key=lambda device: (device.resource, device.index, device.uuid)):
        mask = sum(place[zone] for zone in device.zones)
        code = resources.code_of(device.resource)
        rows.append((code, mask, 1, int(device.healthy), device.index, *_NO_GROUPS))
        names.append((code, device.uuid))
    for zone in topology.zones:
        if zone.memory is not None:
            left = zone.memory.allocatable
            rows.append((at.MEMORY, place[zone.id], left, left, zone.id, *_NO_GROUPS))
            names.append((at.MEMORY, zone.id))
        for size, room in sorted(zone.hugepages.items()):
            code = resources.code_of(pages_of(size))
            rows.append((code, place[zone.id], room.allocatable, room.allocatable, zone.id, *_NO_GROUPS))
            names.append((code, InZone(zone.id)))
    for zone in topology.zones:
        for resource, room in sorted(zone.amounts.items()):
            if _has_ids(node, topology, resource):
                continue
            code = resources.code_of(resource)
            rows.append((code, place[zone.id], room.total, room.allocatable, zone.id, *_AMOUNT))
            names.append((code, InZone(zone.id)))
    found = np.array(rows, np.int64).reshape(-1, at.SUPPLY_COLUMNS)
    count = topology.reserved_count or (0 if topology.kubelet else -(-node.reserved.cpu_milli // MILLI))
    if count and not topology.reserved_cpus:
        reserve(found, count)
    mark_broken_cores(found)
    return found, names


def _has_ids(node: Node, topology: Topology, resource: str) -> bool:
    """Return whether the zones of each CPU, card or device of a node are known; then amounts are ignored."""
    if resource == CPU:
        return bool(topology.cpus)
    if resource == CARD:
        return any(gpu.zones for gpu in node.gpus)
    return any(device.resource == resource for device in topology.devices)
