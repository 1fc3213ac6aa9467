"""The topology of a node as a body: for the server, and for `ullage topo --local` without one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ullage.model.gpu import Gpu
from ullage.model.idset import format_ids
from ullage.model.node import Node
from ullage.model.topology import Topology, Zone
from ullage.wire.body import body_of
from ullage.wire.node_topology import PlacedCardBody, TopologyBody, ZoneBody


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
