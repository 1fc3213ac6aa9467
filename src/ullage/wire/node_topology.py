"""The topology of a machine, as `GET /v1/nodes/{name}/topology` and `ullage topo --local` show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ullage.model.gpu import Gpu
from ullage.model.idset import format_ids
from ullage.model.node import Node
from ullage.model.topology import Device, Room, Topology, Zone
from ullage.wire.body import body_of
from ullage.wire.schema import View


class ZoneBody(View, frozen=True, kw_only=True):
    """A NUMA node. `cpus` is a set such as `0-15,32-47`; `hugepages` are bytes by the size of a page in bytes.

    `held_cpus` are the CPUs held exclusively; there are none where no ledger is kept. `amounts` come from a source
    that knows how many of a resource there are, but not which.
    """

    id: int
    cpus: str
    held_cpus: str
    cores: int
    sockets: list[int]
    memory: Room | None
    hugepages: dict[str, Room]
    amounts: dict[str, Room]


class PlacedCardBody(View, frozen=True, kw_only=True):
    """A card, and the zones that it is near; no zones means that they are not known.

    `free` is the largest fraction that fits, None where no ledger is kept. `holders` are sessions, or executors
    without one.
    """

    index: int
    uuid: str
    model: str | None
    bus_id: str | None
    zones: list[int]
    healthy: bool
    free: float | None
    holders: list[str]


class LinkBody(View, frozen=True, kw_only=True):
    """The link of two devices, by uuid: the number of bonded NVLinks, and the PCIe path (`X`: not known)."""

    a: str
    b: str
    path: str
    nvlinks: int


class KubeletBody(View, frozen=True, kw_only=True):
    """How the kubelet of the machine aligns. `unmodelled` are enabled options that predictions do not follow."""

    policy: str
    scope: str
    options: dict[str, str]
    static_cpus: bool
    cpu_options: dict[str, str]
    static_memory: bool
    unmodelled: list[str]


class TopologyBody(View, frozen=True, kw_only=True):
    """The topology of a machine. A `source` of None means that it is not known; then there are only cards.

    `distances` has a row and a column per zone, in their order, or is empty. `unplaced_cpus` are of unknown zone.
    `reserved_cpus` are reserved from work; where only their number is known it is `reserved_count`.
    """

    node: str
    source: str | None
    observed_at: float | None
    note: str
    zones: list[ZoneBody]
    distances: list[list[int]]
    unplaced_cpus: str
    reserved_cpus: str
    reserved_count: int
    cards: list[PlacedCardBody]
    devices: list[Device]
    links: list[LinkBody]
    kubelet: KubeletBody | None


def topology_body(
    node: Node, cards: Iterable[PlacedCardBody], held_cpus: Collection[int] = frozenset()
) -> TopologyBody:
    """Return the body of a machine with these cards; `held_cpus` are the CPUs held exclusively."""
    known = node.topology or Topology()
    return body_of(
        TopologyBody,
        known,
        node=node.name,
        source=None if node.topology is None else known.source,
        note=node.topology_note,
        zones=[_zone(zone, known, held_cpus) for zone in known.zones],
        unplaced_cpus=format_ids(cpu.id for cpu in known.cpus if cpu.zone is None),
        reserved_cpus=format_ids(known.reserved_cpus),
        cards=list(cards),
    )


def placed_card(gpu: Gpu, free: float | None = None, holders: Sequence[str] = ()) -> PlacedCardBody:
    """Return a card as a body."""
    return body_of(PlacedCardBody, gpu, free=free, holders=holders)


def _zone(zone: Zone, known: Topology, held_cpus: Collection[int]) -> ZoneBody:
    cpus = [cpu for cpu in known.cpus if cpu.zone == zone.id]
    return body_of(
        ZoneBody,
        zone,
        cpus=format_ids(cpu.id for cpu in cpus),
        held_cpus=format_ids(cpu.id for cpu in cpus if cpu.id in held_cpus),
        cores=len({(cpu.socket, cpu.core) for cpu in cpus}),
        sockets=sorted({cpu.socket for cpu in cpus}),
        hugepages={str(size): room for size, room in sorted(zone.hugepages.items())},
        amounts=dict(sorted(zone.amounts.items())),
    )
