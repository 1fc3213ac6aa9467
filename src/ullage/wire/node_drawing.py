"""The topology of a node as a body: for the server, and for `ullage topo --local` without one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ullage.model.gpu import Gpu
from ullage.model.idset import format_ids
from ullage.model.node import Node
from ullage.model.topology import Kubelet, Room, Topology, Zone
from ullage.wire.node_topology import (
    DeviceBody,
    KubeletBody,
    LinkBody,
    PlacedCardBody,
    TopologyBody,
    ZoneBody,
    ZoneRoomBody,
)


def topology_body(
    node: Node, cards: Iterable[PlacedCardBody], held_cpus: Collection[int] = frozenset()
) -> TopologyBody:
    """Return the body of a machine with these cards; `held_cpus` are the CPUs held exclusively."""
    known = node.topology or Topology()
    return TopologyBody(
        node=node.name,
        source=None if node.topology is None else known.source,
        observed_at=known.observed_at,
        note=node.topology_note,
        zones=[_zone(zone, known, held_cpus) for zone in known.zones],
        distances=[list(row) for row in known.distances],
        unplaced_cpus=format_ids(cpu.id for cpu in known.cpus if cpu.zone is None),
        reserved_cpus=format_ids(known.reserved_cpus),
        reserved_count=known.reserved_count,
        cards=list(cards),
        devices=[
            DeviceBody(
                resource=device.resource,
                index=device.index,
                uuid=device.uuid,
                model=device.model,
                bus_id=device.bus_id,
                zones=list(device.zones),
                healthy=device.healthy,
            )
            for device in known.devices
        ],
        links=[LinkBody(a=link.a, b=link.b, path=link.path.value, nvlinks=link.nvlinks) for link in known.links],
        kubelet=None if known.kubelet is None else _kubelet(known.kubelet),
    )


def placed_card(gpu: Gpu, free: float | None = None, holders: Sequence[str] = ()) -> PlacedCardBody:
    """Return a card as a body."""
    return PlacedCardBody(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        bus_id=gpu.bus_id,
        zones=list(gpu.zones),
        healthy=gpu.healthy,
        free=free,
        holders=list(holders),
    )


def _zone(zone: Zone, known: Topology, held_cpus: Collection[int]) -> ZoneBody:
    cpus = [cpu for cpu in known.cpus if cpu.zone == zone.id]
    return ZoneBody(
        id=zone.id,
        cpus=format_ids(cpu.id for cpu in cpus),
        held_cpus=format_ids(cpu.id for cpu in cpus if cpu.id in held_cpus),
        cores=len({(cpu.socket, cpu.core) for cpu in cpus}),
        sockets=sorted({cpu.socket for cpu in cpus}),
        memory=None if zone.memory is None else _room(zone.memory),
        hugepages={str(size): _room(room) for size, room in sorted(zone.hugepages.items())},
        amounts={resource: _room(room) for resource, room in sorted(zone.amounts.items())},
    )


def _room(room: Room) -> ZoneRoomBody:
    return ZoneRoomBody(total=room.total, allocatable=room.allocatable)


def _kubelet(kubelet: Kubelet) -> KubeletBody:
    return KubeletBody(
        policy=kubelet.policy.value,
        scope=kubelet.scope.value,
        options=dict(kubelet.options),
        static_cpus=kubelet.static_cpus,
        cpu_options=dict(kubelet.cpu_options),
        static_memory=kubelet.static_memory,
        unmodelled=list(kubelet.unmodelled),
    )
