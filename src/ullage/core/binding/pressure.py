"""How full nodes may become: a node takes nothing that would fill more than nine tenths of its CPUs or memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.model.compute import ComputeNode, Room
from ullage.model.compute_answer import Dimension, NodePressure

_FULL_TENTHS = 9


def pressure(node: ComputeNode, added: Room) -> NodePressure:
    """What a node would use with more on it. Its disk is looked at only where some of it is added."""
    return NodePressure(node.name, tuple(_dimensions(node.capacity, node.used, added, _FULL_TENTHS)))


def overall(nodes: Iterable[ComputeNode], added: Room) -> tuple[Dimension, ...]:
    """The same of all nodes together."""
    capacity, used = Room(), Room()
    for node in nodes:
        capacity, used = capacity + node.capacity, used + node.used
    return tuple(_dimensions(capacity, used, added, _FULL_TENTHS))


def asked(node: ComputeNode, added: Room) -> tuple[Dimension, ...]:
    """What pods would have asked of a node with more on it: all of it may be asked."""
    return tuple(_dimensions(node.capacity, node.requested, added, 10))


def of_quota(quota: Room, used: Room, added: Room) -> tuple[Dimension, ...]:
    """What an owner would use of a quota: all of it may be used."""
    return tuple(_dimensions(quota, used, added, 10))


def _dimensions(capacity: Room, used: Room, added: Room, tenths: int) -> Iterator[Dimension]:
    amounts = (
        ("cpu", capacity.cpu_milli, used.cpu_milli, added.cpu_milli),
        ("memory", capacity.memory_bytes, used.memory_bytes, added.memory_bytes),
        ("disk", capacity.disk_bytes, used.disk_bytes, added.disk_bytes),
    )
    for resource, there, before, more in amounts:
        if there and (more or resource != "disk"):
            yield Dimension(resource, more, before, there, pressured=10 * (before + more) > tenths * there)
