"""The annotation `topology` of a Numatopology, as JSON: the values for which the schema has no field.

Scope and options, distances, memory, links, uuids and sizes of cards, and the ids of the devices that pods hold. Only
objects that Ullage wrote have it; without it a record has what the schema can hold.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.idset import MAX_ID, format_ids
from ullage.model.node_record import NodeRecord
from ullage.model.quantity import MAX_INT64
from ullage.model.topology import MAX_ZONES, Cpu, Device, Kubelet, Link, Zone
from ullage.wire.body import body_of
from ullage.wire.topology.dropped import Dropped

_Zones = tuple[Annotated[int, msgspec.Meta(ge=0, lt=MAX_ZONES)], ...]


class SupplementCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A card by its index: its uuid, all zones that it is near, and its size in bytes and GFLOPS."""

    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]
    uuid: str = ""
    zones: _Zones = ()
    healthy: bool = True
    bus_id: str | None = None
    model: str | None = None
    vram_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)] | None = None
    compute_gflops: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)] | None = None


class ContainerIds(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids of the devices that a container holds, by resource, and its memory with the zones it is from."""

    name: str
    devices: dict[str, tuple[str, ...]] = {}
    memory: tuple[MemoryHolding, ...] = ()


class PodIds(msgspec.Struct, frozen=True, omit_defaults=True):
    """The containers of a pod that hold any such devices or memory."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    containers: tuple[ContainerIds, ...] = ()


class Supplement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation. `cpus` are those of unknown zone; `reserved_cpus` is a set such as 0-3,8.

    `card_resource` is the resource of `numares` whose entries in `gpuDetail` are the cards. A machine may have devices
    under the name of another vendor's cards too, such as the adapter of its display.
    """

    card_resource: str = ""
    kubelet: Kubelet | None = None
    zones: tuple[Zone, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    cpus: tuple[Cpu, ...] = ()
    reserved_cpus: str = ""
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    cards: tuple[SupplementCard, ...] = ()
    pods: tuple[PodIds, ...] = ()
    stale: bool = False


def supplement_of(record: NodeRecord) -> str:
    """Return the text of the annotation for a record."""
    machine, use = record.topology, record.use or Use()
    supplement = body_of(
        Supplement,
        machine,
        card_resource=record.card_resource,
        cpus=tuple(cpu for cpu in machine.cpus if cpu.zone is None),
        reserved_cpus=format_ids(machine.reserved_cpus),
        cards=tuple(_facts(card) for card in record.cards),
        pods=tuple(pod for pod in map(_pod_ids, use.pods) if pod.containers),
        stale=use.stale,
    )
    plain = msgspec.to_builtins(supplement, str_keys=True)
    if supplement.kubelet is not None:
        del plain["kubelet"]["picks"]  # who picks cards follows from the node, not from its kubelet
    return msgspec.json.encode(plain, order="deterministic").decode()


def read_supplement(text: object, field: str, dropped: Dropped) -> Supplement | None:
    """Return the annotation of an object; an unreadable one is dropped, as if it were absent."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text if isinstance(text, str) else b"", type=Supplement)
    except (msgspec.MsgspecError, RecursionError, InvalidRequest) as error:
        dropped.warn(f"{field}: it cannot be read and is left out: {error}")
        return None


def _facts(card: Gpu) -> SupplementCard:
    """Return the facts of a card that `gpuDetail` lacks. Bus id and model are omitted unless the zone is unknown."""
    return body_of(SupplementCard, card, **({"bus_id": None, "model": None} if card.zones else {}))


def _pod_ids(pod: PodHolding) -> PodIds:
    holding = [container for container in map(_container_ids, pod.containers) if container.devices or container.memory]
    return PodIds(pod.namespace, pod.name, pod.uid, tuple(holding))


def _container_ids(container: Holding) -> ContainerIds:
    return ContainerIds(container.container, dict(container.devices), container.memory)
