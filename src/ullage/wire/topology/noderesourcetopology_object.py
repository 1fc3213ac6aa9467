"""The NodeResourceTopology object of a record, as zone-aware schedulers read it. Lists are sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ullage.model.holding import Holding, Use, card_ids
from ullage.model.node_record import NodeRecord
from ullage.model.provider import pages_of
from ullage.model.topology import CARD, CPU, MEMORY, Device, Kubelet
from ullage.wire.topology import pod_fingerprint
from ullage.wire.topology.noderesourcetopology import KIND
from ullage.wire.topology.numatopology_object import owned_metadata

API_VERSION = "topology.node.k8s.io/v1alpha2"

Amounts = Counter[tuple[int, str]]
"""Amounts by zone and resource."""


def noderesourcetopology_object(record: NodeRecord, *, node_uid: str = "") -> dict[str, Any]:
    """Return the object that describes a node; with `node_uid` it is deleted together with its Node.

    A device in several zones counts in each of them; one of unknown zone is left out. The fingerprint is that of the
    pods with exclusive resources. Without holdings everything is available, and there is no fingerprint.
    """
    total, usable, held = _capacity(record), _allocatable(record), _held(record)
    zones = [
        {
            "name": f"node-{zone.id}",
            "type": "Node",
            "costs": _costs(record, place),
            "resources": [
                {
                    "name": _name(record, resource),
                    "capacity": str(total[zone.id, resource]),
                    "allocatable": str(usable[zone.id, resource]),
                    "available": str(max(0, usable[zone.id, resource] - held[zone.id, resource])),
                }
                for id_, resource in sorted(+total)
                if id_ == zone.id
            ],
        }
        for place, zone in enumerate(record.topology.zones)
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": owned_metadata(record.node, node_uid),
        "attributes": [*_kubelet(record.topology.kubelet), *_fingerprint(record)],
        "zones": zones,
    }


def _name(record: NodeRecord, resource: str) -> str:
    return record.card_resource if resource == CARD else resource


def _costs(record: NodeRecord, place: int) -> list[dict[str, Any]]:
    distances = record.topology.distances[place] if record.topology.distances else ()
    ids = record.topology.zone_ids
    return [{"name": f"node-{id_}", "value": cost} for id_, cost in zip(ids, distances, strict=False)]


# --- amounts ---


def _capacity(record: NodeRecord) -> Amounts:
    found: Amounts = Counter()
    for zone in record.topology.zones:
        found.update({(zone.id, name): room.total for name, room in zone.amounts.items()})
        found.update({(zone.id, pages_of(size)): room.total for size, room in zone.hugepages.items()})
        if zone.memory is not None:
            found[zone.id, MEMORY] = zone.memory.total
    found.update((cpu.zone, CPU) for cpu in record.topology.cpus if cpu.zone is not None)
    found.update(_places(_devices(record)))
    return found


def _allocatable(record: NodeRecord) -> Amounts:
    """Return the amounts that pods may have. Of reserved CPUs whose ids are unknown, the lowest ids are reserved."""
    found: Amounts = Counter()
    topology = record.topology
    for zone in topology.zones:
        found.update({(zone.id, name): room.allocatable for name, room in zone.amounts.items()})
        found.update({(zone.id, pages_of(size)): room.allocatable for size, room in zone.hugepages.items()})
        if zone.memory is not None:
            found[zone.id, MEMORY] = zone.memory.allocatable
    cpus = sorted(topology.cpus, key=lambda cpu: cpu.id)
    left = [cpu for cpu in cpus if cpu.id not in topology.reserved_cpus][topology.reserved_count :]
    found.update((cpu.zone, CPU) for cpu in left if cpu.zone is not None)
    found.update(_places(device for device in _devices(record) if device.healthy))
    return found


def _held(record: NodeRecord) -> Amounts:
    found: Amounts = Counter()
    home = {cpu.id: cpu.zone for cpu in record.topology.cpus}
    places = {(each.resource, each.uuid): each.zones for each in _devices(record)}
    for container in _containers(record.use or Use()):
        found.update((zone, CPU) for cpu in container.cpus if (zone := home.get(cpu)) is not None)
        for resource, id_ in _ids(container):
            found.update((zone, resource) for zone in places.get((resource, id_), ()))
        for block in container.memory:
            for number, zone in enumerate(block.zones):
                each, rest = divmod(block.amount_bytes, len(block.zones))
                found[zone, block.kind] += each + (number < rest)
    return found


def _devices(record: NodeRecord) -> Iterator[Device]:
    """Yield the devices of a node, with its cards among them where the cluster has a name for them."""
    if record.card_resource:
        for card in record.cards:
            yield Device(CARD, card.index, card.uuid, zones=card.zones, healthy=card.healthy)
    yield from record.topology.devices


def _places(devices: Iterable[Device]) -> Iterator[tuple[int, str]]:
    for device in devices:
        yield from ((zone, device.resource) for zone in device.zones)


def _containers(use: Use) -> Iterator[Holding]:
    for pod in use.pods:
        yield from pod.containers


def _ids(container: Holding) -> set[tuple[str, str]]:
    """Return the devices of a container, each once; a part of a card is its card."""
    others = {(resource, id_) for resource, ids in container.devices if resource != CARD for id_ in ids}
    return others | {(CARD, id_) for id_ in card_ids([container])}


# --- attributes ---


def _kubelet(kubelet: Kubelet | None) -> Iterator[dict[str, str]]:
    if kubelet is None:
        return
    yield {"name": "topologyManagerPolicy", "value": kubelet.policy.value}
    yield {"name": "topologyManagerScope", "value": kubelet.scope.value}
    for name, value in sorted(kubelet.options.items()):
        yield {"name": "topologyManagerOption" + "".join(map(str.capitalize, name.split("-"))), "value": value}


def _fingerprint(record: NodeRecord) -> Iterator[dict[str, str]]:
    if record.use is None:
        return
    places = {(each.resource, each.uuid): each.zones for each in _devices(record)}
    exclusive = [
        (pod.namespace, pod.name)
        for pod in record.use.pods
        if any(
            container.cpus
            or any(block.zones for block in container.memory)
            or any(places.get(device) for device in _ids(container))
            for container in pod.containers
        )
    ]
    yield {"name": pod_fingerprint.ATTRIBUTE, "value": pod_fingerprint.fingerprint_of(exclusive)}
    yield {"name": pod_fingerprint.METHOD, "value": pod_fingerprint.EXCLUSIVE_ONLY}
