"""The limits of nodes. A node accepts nothing that would fill more than nine tenths of its CPUs or memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.model.compute import ComputeNode, HostRoom
from ullage.model.compute_result import Dimension, NodePressure

_FULL_TENTHS = 9


def pressure(node: ComputeNode, added: HostRoom) -> NodePressure:
    """Return the usage of a node after an addition. The disk counts only if the addition uses some."""
    return NodePressure(node.name, _dimensions(node.capacity, node.used, added, _FULL_TENTHS))


def too_full(node: ComputeNode, added: HostRoom) -> bool:
    return any(_over(node.capacity, node.used, added, _FULL_TENTHS))


def overall(nodes: Iterable[ComputeNode], added: HostRoom) -> tuple[Dimension, ...]:
    nodes = tuple(nodes)
    capacity, used = _sum(node.capacity for node in nodes), _sum(node.used for node in nodes)
    return _dimensions(capacity, used, added, _FULL_TENTHS)


def requested(node: ComputeNode, added: HostRoom) -> tuple[Dimension, ...]:
    """Return the requests of pods on a node after an addition. They may fill the node."""
    return _dimensions(node.capacity, node.requested, added, 10)


def overcommitted(node: ComputeNode, added: HostRoom) -> bool:
    return any(_over(node.capacity, node.requested, added, 10))


def _dimensions(capacity: HostRoom, used: HostRoom, added: HostRoom, tenths: int) -> tuple[Dimension, ...]:
    over = _over(capacity, used, added, tenths)
    return tuple(
        Dimension(resource, more, before, there, pressured=pressured)
        for (resource, there, before, more), pressured in zip(_amounts(capacity, used, added), over, strict=True)
    )


def _over(capacity: HostRoom, used: HostRoom, added: HostRoom, tenths: int) -> Iterator[bool]:
    return (10 * (before + more) > tenths * there for _, there, before, more in _amounts(capacity, used, added))


def _amounts(capacity: HostRoom, used: HostRoom, added: HostRoom) -> Iterator[tuple[str, int, int, int]]:
    """Yield each resource with its total (0 if unknown), what is used, and what is added."""
    if capacity.cpu_milli:
        yield "cpu", capacity.cpu_milli, used.cpu_milli, added.cpu_milli
    if capacity.memory_bytes:
        yield "memory", capacity.memory_bytes, used.memory_bytes, added.memory_bytes
    if capacity.disk_bytes and added.disk_bytes:
        yield "disk", capacity.disk_bytes, used.disk_bytes, added.disk_bytes


def _sum(rooms: Iterable[HostRoom]) -> HostRoom:
    amounts = [(room.cpu_milli, room.memory_bytes, room.disk_bytes) for room in rooms]
    return HostRoom(*map(sum, zip(*amounts, strict=True))) if amounts else HostRoom()
