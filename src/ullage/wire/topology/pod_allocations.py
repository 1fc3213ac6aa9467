"""`podAllocations` of a Numatopology: per pod and container an id set for CPUs, and quantities for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.idset import format_ids
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.topology import CARD, CPU, HUGEPAGES, MEMORY
from ullage.wire.document import Document, text
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.topology.dropped import Dropped
from ullage.wire.topology.supplement import ContainerIds, Supplement

_NO_IDS = ContainerIds("")


def read_use(listed: object, card_name: str, supplement: Supplement, dropped: Dropped) -> Use | None:
    """Return the holdings, with the ids of devices where the supplement has them.

    The result is None if the object lacks them, or has an unreadable entry: what that entry holds is not free.
    """
    if listed is None:
        return None
    before = len(dropped.warnings)
    ids = {
        (pod.uid, pod.namespace, pod.name, container.name): container
        for pod in supplement.pods
        for container in pod.containers
    }
    pods = []
    for path, entry in dropped.rows(listed, "spec.podAllocations"):
        uid, namespace, name = (text(entry.get(key)) for key in ("uid", "namespace", "name"))
        containers = tuple(
            _holding(
                here, raw, ids.get((uid, namespace, name, text(raw.get("name"))), _NO_IDS), card_name, dropped=dropped
            )
            for here, raw in dropped.rows(entry.get("containerAllocations"), f"{path}.containerAllocations")
        )
        pods.append(PodHolding(namespace, name, uid, containers))
    return None if len(dropped.warnings) > before else Use(tuple(pods), stale=supplement.stale)


def write_use(use: Use, card_name: str) -> list[dict[str, Any]]:
    """Return the `podAllocations` of these holdings."""
    return [
        {
            "uid": pod.uid,
            "name": pod.name,
            "namespace": pod.namespace,
            "containerAllocations": [
                {"name": container.container, "allocations": dict(sorted(_allocations(container, card_name)))}
                for container in pod.containers
            ],
        }
        for pod in use.pods
    ]


def _holding(path: str, raw: Document, ids: ContainerIds, card_name: str, dropped: Dropped) -> Holding:
    cpus: tuple[int, ...] = ()
    counts: dict[str, int] = {}
    memory: list[MemoryHolding] = []
    for name, amount in dropped.section(raw.get("allocations"), f"{path}.allocations").items():
        here = f"{path}.allocations.{name}"
        with dropped.entry():
            if name == CPU:
                cpus = dropped.ids(amount, here)
            elif _in_bytes(text(name)):
                memory.append(MemoryHolding(text(name), (), parse_quantity(amount, here, maximum=MAX_INT64)))
            else:
                counts[CARD if name == card_name else text(name)] = parse_quantity(amount, here, maximum=MAX_INT32)
    return Holding(
        container=text(raw.get("name")),
        cpus=cpus,
        devices=tuple(sorted(ids.devices.items())),
        counts=tuple(sorted((name, count) for name, count in counts.items() if count and name not in ids.devices)),
        memory=ids.memory or tuple(sorted(memory, key=lambda one: one.kind)),
    )


def _allocations(container: Holding, card_name: str) -> Iterator[tuple[str, str]]:
    if container.cpus:
        yield CPU, format_ids(container.cpus)
    for resource, count in (*((name, len(ids)) for name, ids in container.devices), *container.counts):
        yield card_name if resource == CARD else resource, str(count)
    for kind, amount in _by_kind(container.memory).items():
        yield kind, str(amount)


def _by_kind(memory: Iterable[MemoryHolding]) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for block in memory:
        amounts[block.kind] = amounts.get(block.kind, 0) + block.amount_bytes
    return amounts


def _in_bytes(resource: str) -> bool:
    return resource == MEMORY or resource.startswith(HUGEPAGES)
