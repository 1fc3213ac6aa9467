"""The Numatopology object of a record, as Volcano's scheduler reads it. Zeros are written, and lists are sorted."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from ullage.model.idset import format_ids
from ullage.model.node_record import NodeRecord
from ullage.model.topology import CARD
from ullage.wire.kubernetes_quantity import format_milli
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.topology.numatopology import KIND, SHORT_CARD
from ullage.wire.topology.pod_allocations import write_use
from ullage.wire.topology.supplement import supplement_of

API_VERSION = "nodeinfo.volcano.sh/v1alpha1"


def numatopology_object(record: NodeRecord, domain: str = DOMAIN, *, node_uid: str = "") -> dict[str, Any]:
    """Return the object that describes a node; with `node_uid` it is deleted together with its Node.

    The same record in another order gives the same object, so a different object means that it has to be written.
    Cards of unknown zone are in `numares` only. Values without a field in the schema are in the annotation `topology`.
    """
    record = _in_order(record)
    annotations = {f"{domain}/topology": supplement_of(record)}
    if record.topology.observed_at is not None:
        annotations["timestamp"] = str(int(record.topology.observed_at))
    metadata = owned_metadata(record.node, node_uid) | {"annotations": annotations}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": _spec(record)}


def owned_metadata(node: str, node_uid: str) -> dict[str, Any]:
    """Return the metadata of an object with the name of a node; with `node_uid` the Node owns it."""
    if not node_uid:
        return {"name": node}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {"name": node, "ownerReferences": [owner]}


def _in_order(record: NodeRecord) -> NodeRecord:
    machine, use = record.topology, record.use
    if use is not None:
        pods = (replace(pod, containers=tuple(sorted(pod.containers, key=attrgetter("container")))) for pod in use.pods)
        use = replace(use, pods=tuple(sorted(pods, key=attrgetter("namespace", "name", "uid"))))
    topology = replace(
        machine,
        cpus=tuple(sorted(machine.cpus, key=attrgetter("id"))),
        devices=tuple(sorted(machine.devices, key=attrgetter("resource", "index", "uuid"))),
        links=tuple(sorted(machine.links, key=attrgetter("a", "b"))),
    )
    return replace(record, topology=topology, cards=tuple(sorted(record.cards, key=attrgetter("index"))), use=use)


def _spec(record: NodeRecord) -> dict[str, Any]:
    machine, kubelet = record.topology, record.topology.kubelet
    card_name = record.card_resource or SHORT_CARD
    spec: dict[str, Any] = {
        "resReserved": {"cpu": format_milli(record.reserved.cpu_milli), "memory": str(record.reserved.memory_bytes)},
        "numares": {
            card_name if resource == CARD else resource: {
                "allocatable": format_ids(stock.free),
                "capacity": stock.total,
            }
            for resource, stock in sorted(record.stock.items())
        },
        "cpuDetail": {
            str(cpu.id): {"numa": cpu.zone, "socket": cpu.socket, "core": cpu.core}
            for cpu in machine.cpus
            if cpu.zone is not None
        },
        "gpuDetail": {
            str(card.index): {"numa": card.zones[0], "busID": card.bus_id or "", "deviceModel": card.model or ""}
            for card in record.cards
            if card.zones
        },
    }
    if kubelet is not None:
        cpu_policy = "static" if kubelet.static_cpus else "none"
        spec["policies"] = {"CPUManagerPolicy": cpu_policy, "TopologyManagerPolicy": kubelet.policy.value}
    if record.use is not None:
        spec["podAllocations"] = write_use(record.use, card_name)
    return spec
