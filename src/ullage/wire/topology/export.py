"""The record that an exporter writes of its machine: the discovered hardware, with the settings of its kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.model.holding import Use
from ullage.model.node import Node
from ullage.model.node_record import NodeRecord, Stock, stock_of_cards
from ullage.model.quantity import format_bytes
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, CPU, HUGEPAGES, MEMORY, Device, Room, Topology, Zone
from ullage.wire.topology.allocatable import with_allocatable
from ullage.wire.topology.device_ids import in_names_of_record
from ullage.wire.topology.kubelet_config import KubeletSettings
from ullage.wire.topology.podresources import Allocatable
from ullage.wire.vendors.shipped import NATIVE_RESOURCES

_NO_NAMES: Mapping[str, str] = {}
ALL_OF_IT = Allocatable()
"""A kubelet that was not asked: pods may have what the machine has, less what is reserved."""


def record_of(
    node: Node,
    settings: KubeletSettings,
    card_resource: str,
    names: Mapping[str, str] = _NO_NAMES,
    use: Use | None = None,
    allocatable: Allocatable = ALL_OF_IT,
) -> NodeRecord:
    """Return the record of a discovered machine, less what its kubelet reserves.

    `card_resource` is the resource of the cards in the cluster, "" where the machine has none; `names` are those of
    other resources. CPUs that the discovering process may not use itself are not reserved from pods: only the kubelet
    knows the reserved ones. `use` are the holdings, in the kubelet's names; None where the kubelet was not asked, and
    then everything is free. `allocatable` is what the kubelet says that pods may have, in its own names.
    """
    found = node.topology or Topology()
    topology = replace(
        found,
        zones=tuple(_zone(zone, settings) for zone in found.zones),
        devices=tuple(replace(each, resource=names.get(each.resource, each.resource)) for each in found.devices),
        reserved_cpus=settings.reserved_cpus,
        reserved_count=0 if settings.reserved_cpus else -(-settings.reserved.cpu_milli // MILLI),
        kubelet=settings.kubelet,
    )
    topology, cards = with_allocatable(topology, node.gpus, card_resource, allocatable)
    use = None if use is None else in_names_of_record(use, cards, card_resource, topology.devices)
    held = use or Use()
    stock = _stock_of(topology.devices, held) | ({CARD: stock_of_cards(cards, held)} if card_resource else {})
    if found.cpus:
        taken = topology.reserved_cpus.union(*(one.cpus for pod in held.pods for one in pod.containers))
        stock[CPU] = Stock(len(found.cpus), tuple(sorted({cpu.id for cpu in found.cpus} - taken)))
    return NodeRecord(node.name, topology, cards, card_resource, stock=stock, reserved=settings.reserved, use=use)


def _zone(zone: Zone, settings: KubeletSettings) -> Zone:
    if not settings.kubelet.static_memory:
        return zone
    reserved = settings.reserved_memory.get(zone.id, {})
    pages = {
        size: _less(room, reserved.get(f"{HUGEPAGES}{format_bytes(size)}", 0)) for size, room in zone.hugepages.items()
    }
    memory = None if zone.memory is None else _less(zone.memory, reserved.get(MEMORY, 0))
    return replace(zone, memory=memory, hugepages=pages)


def _less(room: Room, reserved: int) -> Room:
    return replace(room, allocatable=max(0, room.allocatable - reserved))


def _stock_of(devices: tuple[Device, ...], use: Use) -> dict[str, Stock]:
    """Return, by resource, how many devices there are and the indices of the free ones.

    Of cards, one more counts as held for each id that matches none of them.
    """
    held = {
        (resource, id_)
        for pod in use.pods
        for container in pod.containers
        for resource, ids in container.devices
        for id_ in ids
    }
    stock: dict[str, Stock] = {}
    for device in sorted(devices, key=lambda device: device.index):
        known = stock.get(device.resource, Stock(0))
        free = device.healthy and (device.resource, device.uuid) not in held
        stock[device.resource] = Stock(known.total + 1, (*known.free, device.index) if free else known.free)
    unknown = held - {(device.resource, device.uuid) for device in devices}
    for resource in stock.keys() & NATIVE_RESOURCES.keys():
        surplus = sum(name == resource for name, _ in unknown)
        stock[resource] = replace(stock[resource], free=stock[resource].free[surplus:])
    return stock
