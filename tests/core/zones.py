"""Machines with zones for tests: the layouts of the cases."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Cpu, Kubelet, Room, Topology, Zone, ZonePolicy

GIB = 2**30


def machine(
    name: str = "n",
    *,
    cards: Sequence[int | None] = (0, 0, 0, 0, 1, 1, 1, 1),
    cpus: Sequence[int] = (16, 16),
    zones: Sequence[int] = (0, 1),
    threads: int = 1,
    memory: Sequence[int] = (),
    kubelet: Kubelet | None = None,
    distances: Sequence[Sequence[int]] = (),
    reserved: Sequence[int] = (),
) -> Node:
    """A node with the zone of each card (None: unknown), so many CPUs and GiB of memory per zone, a socket per zone."""
    gpus = tuple(
        Gpu(f"{name}-g{index}", index, model="M", zones=() if zone is None else (zone,), vram_bytes=GIB)
        for index, zone in enumerate(cards)
    )
    first = [sum(cpus[:position]) for position in range(len(cpus))]
    seats = tuple(
        Cpu(first[at] + number, zone, at, number // threads)
        for at, zone in enumerate(zones[: len(cpus)])
        for number in range(cpus[at])
    )
    rooms = [Room(size * GIB, size * GIB) for size in memory] + [None] * (len(zones) - len(memory))
    topology = Topology(
        tuple(Zone(zone, room) for zone, room in zip(zones, rooms, strict=True)),
        tuple(tuple(row) for row in distances),
        seats,
        reserved_cpus=frozenset(reserved),
        kubelet=kubelet,
    )
    return Node(name, sum(cpus) * 1000, 1 << 40, gpus, topology=topology)


def kubelet(policy: str, *, static_cpus: bool = True, **more: object) -> Kubelet:
    """A kubelet with a static CPU manager and a policy."""
    return Kubelet(ZonePolicy(policy), static_cpus=static_cpus, **more)  # type: ignore[arg-type]  # facts by name
