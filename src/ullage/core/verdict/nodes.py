"""What a node has too little of for a unit of a request, its cards aside: CPU, memory, room for one more allocation.

The kernel decides (`core/kernel/verdict.py`); the numbers come from the columns that it compares.
"""

from __future__ import annotations

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel import columns as at
from ullage.core.kernel import reasons
from ullage.core.kernel.verdict import judge_nodes, lacks
from ullage.core.verdict.mismatch import node_mismatch
from ullage.core.verdict.shape import shape_of
from ullage.model.affinity import NodeAffinity
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

BY_NODE = -1
"""The cap of a request on allocations per node if the node's own limit applies."""

_AMOUNTS = (
    (reasons.LACKS_CPU, Code.CPU, at.CPU, at.CPU_FREE, at.CPU_TOTAL),
    (reasons.LACKS_MEMORY, Code.MEMORY, at.MEMORY, at.MEMORY_FREE, at.MEMORY_TOTAL),
)


def closed(fleet: Fleet, row: int) -> Rejection | None:
    """Return why a node takes no work at all; None if it takes some."""
    node = fleet.nodes[row]
    if node.schedulable:
        return None
    return Rejection(Code.CORDONED if node.cordoned else Code.NOT_READY, Cure.NODE_CHANGE, node=node.name)


def unsuited(node: Node, nodes: NodeAffinity) -> Rejection | None:
    """Return why the conditions on nodes exclude a node, as a whole; None if it meets them."""
    if not nodes.allows(node.name, node.labels):
        return node_mismatch(Code.NODE_AFFINITY, node, nodes)
    return None if nodes.tolerates(node.taints) else node_mismatch(Code.NODE_TAINTED, node, nodes)


def lacking(fleet: Fleet, asked: ResourceRequirement) -> Column:
    """Return per node the bits of what it lacks (`core/kernel/reasons.py`)."""
    out = np.zeros(len(fleet.nodes), dtype=np.int64)
    judge_nodes(fleet.node_rows, shape_of(fleet, asked).rows, out)
    return out


def shortfalls(fleet: Fleet, row: int, asked: ResourceRequirement) -> list[Rejection]:
    """Return each amount of which a node has too little: CPU, memory.

    What a node never has enough of is given with its total instead of what is free.
    """
    shape, node = shape_of(fleet, asked).rows, fleet.nodes[row].name
    short = lacks(fleet.node_rows, row, shape)
    found = []
    for bit, code, need_at, free_at, total_at in _AMOUNTS:
        if short & bit:
            needed, free = shape.item(0, need_at), fleet.node_rows.item(row, free_at)
            total = fleet.node_rows.item(row, total_at)
            never = needed > total
            cure = Cure.NODE_CHANGE if never else Cure.CAPACITY
            found.append(Rejection(code, cure, needed, total if never else max(0, free), node=node))
    return found


def slots_short(fleet: Fleet, row: int, asked: ResourceRequirement) -> Rejection | None:
    """Return that a node has as many allocations as it may have; None if it takes one more."""
    workers = workers_at_cap(fleet, row, asked)
    if workers is None:
        return None
    _, most = workers
    free = max(0, fleet.slots_free.item(row))
    return Rejection(Code.SLOTS, Cure.CAPACITY if most else Cure.NODE_CHANGE, 1, free, node=fleet.nodes[row].name)


def workers_at_cap(fleet: Fleet, row: int, asked: ResourceRequirement, cap: int = BY_NODE) -> tuple[int, int] | None:
    """Return the allocations of a node and how many it may have; None if it takes one more."""
    shape = shape_of(fleet, asked).rows[:1].copy()
    shape[0, at.CAP] = cap
    if not lacks(fleet.node_rows, row, shape) & reasons.LACKS_SLOT:
        return None
    return fleet.workers(row), fleet.slots_total.item(row) if cap == BY_NODE else cap
