"""A kubelet's PodResources API (v1): the devices, CPUs and memory of pods, and what pods may have.

Answers are plain mappings with the names of the protocol, whose writers omit zeros: a node of a topology without an
`ID` is zone 0, but a missing topology is an unknown zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.idset import MAX_ID
from ullage.model.quantity import MAX_INT64, parse_count
from ullage.model.topology import zones_of
from ullage.wire.document import Document, mapping, sequence, text
from ullage.wire.topology.dropped import Dropped

_ZONE_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Allocatable:
    """What containers may have: CPUs, ascending; the zones of each device, by resource and id; memory by zones."""

    cpus: tuple[int, ...] = ()
    devices: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    memory: tuple[MemoryHolding, ...] = ()


def read_pod_resources(answer: object) -> tuple[Use, tuple[str, ...]]:
    """Return the holdings from the answer to `List`, and a sentence for each entry that was dropped.

    Resources and ids are those of the kubelet. A device of a claim has its driver as the resource, and `pool/device`
    as its id.
    """
    dropped = Dropped()
    pods = tuple(
        PodHolding(
            namespace=text(pod.get("namespace")),
            name=text(pod.get("name")),
            containers=tuple(
                _holding(container, here, dropped)
                for here, container in dropped.rows(pod.get("containers"), f"{path}.containers")
            ),
        )
        for path, pod in dropped.rows(mapping(answer, "answer").get("pod_resources"), "pod_resources")
    )
    return Use(pods), dropped.warnings


def read_allocatable(answer: object) -> tuple[Allocatable, tuple[str, ...]]:
    """Return what pods may have, and a sentence for each entry that was dropped.

    `answer` is that to `GetAllocatableResources`.
    """
    dropped = Dropped()
    found = mapping(answer, "answer")
    devices: dict[str, dict[str, tuple[int, ...]]] = {}
    for path, raw in dropped.rows(found.get("devices"), "devices"):
        with dropped.entry():
            zones = _zones(raw, path)
            for id_ in _ids(raw, path):
                known = devices.setdefault(text(raw.get("resource_name")), {})
                known[id_] = tuple(sorted({*known.get(id_, ()), *zones}))
    return Allocatable(_cpus(found, "cpu_ids", dropped), devices, _memory(found, "memory", dropped)), dropped.warnings


def read_zones(ids: list[object]) -> tuple[int, ...]:
    """Return the zones, ascending, of numbers or strings of digits; invalid ids are unknown, and left out."""
    return zones_of([_zone(id_) for id_ in ids])


def _zone(value: object) -> object:
    short = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _ZONE_DIGITS
    return int(str(value)) if short else value


def _holding(container: Document, path: str, dropped: Dropped) -> Holding:
    devices: dict[str, list[str]] = {}
    for here, raw in dropped.rows(container.get("devices"), f"{path}.devices"):
        with dropped.entry():
            ids = _ids(raw, here)
            devices.setdefault(text(raw.get("resource_name")), []).extend(ids)
    for here, claim in dropped.rows(container.get("dynamic_resources"), f"{path}.dynamic_resources"):
        for _, raw in dropped.rows(claim.get("claim_resources"), f"{here}.claim_resources"):
            name = f"{text(raw.get('pool_name'))}/{text(raw.get('device_name'))}"
            devices.setdefault(text(raw.get("driver_name")), []).append(name)
    return Holding(
        container=text(container.get("name")),
        cpus=_cpus(container, f"{path}.cpu_ids", dropped),
        devices=tuple(sorted((resource, tuple(sorted(set(ids)))) for resource, ids in devices.items() if ids)),
        memory=_memory(container, f"{path}.memory", dropped),
    )


def _ids(raw: Document, path: str) -> list[str]:
    return [text(id_) for id_ in sequence(raw.get("device_ids"), f"{path}.device_ids")]


def _cpus(raw: Document, path: str, dropped: Dropped) -> tuple[int, ...]:
    return dropped.read(
        lambda: tuple(sorted({_number(id_, path, MAX_ID) for id_ in sequence(raw.get("cpu_ids"), path)})), ()
    )


def _memory(raw: Document, path: str, dropped: Dropped) -> tuple[MemoryHolding, ...]:
    blocks = []
    for here, block in dropped.rows(raw.get("memory"), path):
        with dropped.entry():
            size = _number(block.get("size"), f"{here}.size", MAX_INT64)
            blocks.append(MemoryHolding(text(block.get("memory_type")), _zones(block, here), size))
    return tuple(blocks)


def _zones(raw: Document, path: str) -> tuple[int, ...]:
    """Return the zones of an entry; none where it has no topology, or one with no valid zone."""
    topology = mapping(raw.get("topology"), f"{path}.topology")
    nodes = sequence(topology.get("nodes"), f"{path}.topology.nodes")
    return read_zones([mapping(node, f"{path}.topology.nodes").get("ID", 0) for node in nodes])


def _number(value: object, path: str, most: int) -> int:
    """Return a number, which JSON may have as a string; 0 if it was omitted."""
    return parse_count(text(0 if value is None else value), path, most)
