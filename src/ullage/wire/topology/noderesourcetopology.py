"""NodeResourceTopology (`topology.node.k8s.io`, v1alpha2 and v1alpha1): the amounts of each zone, without ids.

It is written by node-feature-discovery or the resource topology exporter; it is cluster-scoped and named after its
node. What is allocatable but not `available` was held when it was written, by pods that it does not name.
"""

from __future__ import annotations

import re

from ullage.model.error import InvalidRequest, invalid
from ullage.model.holding import ZoneAmounts
from ullage.model.node_record import IncludedPods, NodeRecord
from ullage.model.provider import pages_of
from ullage.model.quantity import MAX_INT32
from ullage.model.resources import MILLI
from ullage.model.topology import (
    CPU,
    HUGEPAGES,
    MAX_DISTANCE,
    MAX_ZONE_BYTES,
    MAX_ZONES,
    MEMORY,
    Kubelet,
    Room,
    Scope,
    Topology,
    Zone,
    ZonePolicy,
)
from ullage.wire.document import Document, text, whole
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.topology import pod_fingerprint
from ullage.wire.topology.dropped import Dropped, as_object
from ullage.wire.vendors.shipped import as_resource

KIND = "NodeResourceTopology"
SOURCE = "noderesourcetopology"

_NODE = re.compile(r"node-([0-9]{1,9})", re.ASCII)

_OPTION = "topologyManagerOption"
"""The prefix of attributes of the topology manager's options: `topologyManagerOptionPreferClosestNumaNodes`."""
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])", re.ASCII)

_POLICIES = {
    "None": ZonePolicy.NONE,
    "BestEffort": ZonePolicy.BEST_EFFORT,
    "Restricted": ZonePolicy.RESTRICTED,
    "SingleNUMANode": ZonePolicy.SINGLE_ZONE,
}
_LEGACY = re.compile(rf"({'|'.join(_POLICIES)})(?:(Container|Pod)Level)?", re.ASCII)
"""Names of `topologyPolicies`, which attributes have replaced."""


def read_noderesourcetopology(document: object) -> tuple[NodeRecord, tuple[str, ...]]:
    """Return the record of a node, and a sentence for each entry that was dropped.

    The document does not say whether the CPU and the memory manager are static. They are taken to be so where
    zones have CPUs and memory.

    Raises:
        InvalidRequest: it is not a NodeResourceTopology, or a zone is there twice or has an id above 63
            (`topology-invalid`).

    """
    found, name = as_object(document, KIND)
    dropped = Dropped()
    rows = _zone_rows(found, dropped)
    attributes = _attributes(found, dropped)
    found_zones = [_zone(id_, *rows[id_], dropped) for id_ in sorted(rows)]
    zones = tuple(zone for zone, _ in found_zones)
    held = tuple(each for _, amounts in found_zones for each in amounts)
    topology = Topology(
        zones=zones,
        distances=_distances(rows, dropped),
        kubelet=_kubelet(found, attributes, zones, dropped),
        source=SOURCE,
    )
    included = _included(found, attributes, dropped)
    return NodeRecord(name, topology, held=held, included=included), dropped.warnings


def _attributes(document: Document, dropped: Dropped) -> dict[str, str]:
    return {
        text(entry.get("name")): text(entry.get("value"))
        for _, entry in dropped.rows(document.get("attributes"), "attributes")
    }


def _included(document: Document, attributes: Document, dropped: Dropped) -> IncludedPods:
    """Return the fingerprint of the attribute, else that of the annotation, as older writers have it."""
    annotations = dropped.section(document["metadata"].get("annotations"), "metadata.annotations")
    found = attributes.get(pod_fingerprint.ATTRIBUTE)
    method = attributes.get(pod_fingerprint.METHOD) if found else None
    found = found or text(annotations.get(pod_fingerprint.ANNOTATION))
    return IncludedPods(found, method == pod_fingerprint.EXCLUSIVE_ONLY) if found else IncludedPods()


def _zone_rows(document: Document, dropped: Dropped) -> dict[int, tuple[str, Document]]:
    """Return the path and the entry of each NUMA node, by its id; zones of other types are skipped."""
    rows: dict[int, tuple[str, Document]] = {}
    for path, entry in dropped.rows(document.get("zones"), "zones"):
        if text(entry.get("type")) != "Node":
            continue
        match = _NODE.fullmatch(text(entry.get("name")))
        if match is None:
            dropped.warn(invalid(f"{path}.name", entry.get("name"), "a name such as node-0 is needed").message)
            continue
        id_ = int(match.group(1))
        if id_ in rows or id_ >= MAX_ZONES:
            fix = f"each zone is there once, with an id from 0 to {MAX_ZONES - 1}"
            message = invalid(f"{path}.name", entry["name"], fix).message
            raise InvalidRequest(message, code="topology-invalid", field=f"{path}.name")
        rows[id_] = path, entry
    return rows


def _zone(id_: int, path: str, entry: Document, dropped: Dropped) -> tuple[Zone, ZoneAmounts]:
    """Return a zone, and what is held of its resources."""
    memory: Room | None = None
    hugepages: dict[int, Room] = {}
    amounts: dict[str, Room] = {}
    held: dict[str, int] = {}
    seen: set[str] = set()
    for here, raw in dropped.rows(entry.get("resources"), f"{path}.resources"):
        with dropped.entry():
            name = text(raw.get("name"))
            if not name or name in seen:
                raise invalid(f"{here}.name", name, "each resource of a zone is named once")
            seen.add(name)
            if name == MEMORY:
                resource, (memory, used) = MEMORY, _room(raw, here, 1, MAX_ZONE_BYTES)
            elif name.startswith(HUGEPAGES):
                size = parse_quantity(name.removeprefix(HUGEPAGES), f"{here}.name")
                resource, (hugepages[size], used) = pages_of(size), _room(raw, here, 1, MAX_ZONE_BYTES)
            else:
                resource, (room, used) = as_resource(name), _room(raw, here, MILLI, MAX_INT32)
                known = amounts.get(resource, Room(0, 0))
                amounts[resource] = Room(known.total + room.total, known.allocatable + room.allocatable)
            held[resource] = held.get(resource, 0) + used
    return Zone(id_, memory, hugepages, amounts), tuple((id_, name, held[name]) for name in sorted(held) if held[name])


def _room(raw: Document, path: str, parts: int, most: int) -> tuple[Room, int]:
    """Return the amount of a resource in the zone, and how much is held, in whole units.

    A part of a CPU is never exclusive. A missing amount of what is available is all of what is allocatable.
    """

    def amount(name: str, otherwise: object) -> int:
        quantity = raw.get(name, otherwise)
        return parse_quantity(quantity, f"{path}.{name}", units=parts, maximum=most * parts) // parts

    total = amount("capacity", 0)
    usable = amount("allocatable", raw.get("capacity", 0))
    free = amount("available", raw.get("allocatable", raw.get("capacity", 0)))
    return Room(total, usable), max(0, usable - free)


def _distances(rows: dict[int, tuple[str, Document]], dropped: Dropped) -> tuple[tuple[int, ...], ...]:
    """Return a row and a column per zone, ascending; nothing if one of the distances is missing."""
    matrix = []
    for id_ in sorted(rows):
        path, entry = rows[id_]
        costs = {}
        for here, raw in dropped.rows(entry.get("costs"), f"{path}.costs"):
            with dropped.entry():
                costs[text(raw.get("name"))] = whole(raw.get("value"), f"{here}.value", MAX_DISTANCE)
        matrix.append(tuple(costs[f"node-{other}"] for other in sorted(rows) if f"node-{other}" in costs))
    if all(len(row) == len(rows) for row in matrix):
        return tuple(matrix)
    if any(matrix):
        dropped.warn("zones.costs: a distance between two zones is missing; the distances are left out")
    return ()


def _kubelet(document: Document, raw: dict[str, str], zones: tuple[Zone, ...], dropped: Dropped) -> Kubelet:
    """Return how the kubelet aligns: by the attributes, else by `topologyPolicies`, as older writers have it."""
    old_policy, old_scope = _by_name(document.get("topologyPolicies"), dropped)
    policy = raw.get("topologyManagerPolicy", old_policy)
    scope = raw.get("topologyManagerScope", old_scope)
    return Kubelet(
        policy=ZonePolicy(dropped.choice(policy, "attributes.topologyManagerPolicy", [*ZonePolicy])),
        scope=Scope(dropped.choice(scope, "attributes.topologyManagerScope", [*Scope])),
        options={
            _CAPITAL.sub("-", name.removeprefix(_OPTION)).lower(): value
            for name, value in raw.items()
            if name.startswith(_OPTION)
        },
        static_cpus=any(CPU in zone.amounts for zone in zones),
        static_memory=any(zone.memory is not None for zone in zones),
    )


def _by_name(listed: object, dropped: Dropped) -> tuple[str | None, str | None]:
    """Return policy and scope from the first name of the list, None where it has none.

    Such a name is `SingleNUMANodePodLevel`.
    """
    if not listed:
        return None, None
    path = "topologyPolicies"
    names = listed if isinstance(listed, list | tuple) else ()
    match = _LEGACY.fullmatch(text(names[0])) if names else None
    if match is None:
        dropped.warn(invalid(path, listed, f"a list with one of {', '.join(_POLICIES)} is needed").message)
        return None, None
    if len(names) > 1:
        dropped.warn(f"{path}: {match.group()} counts, and the other {len(names) - 1} do not")
    policy, scope = match.groups()
    return _POLICIES[policy], scope and scope.lower()
