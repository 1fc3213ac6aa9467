"""The node list of Alibaba's cluster-trace-v2026-spot-gpu (Duan et al., ASPLOS'26)."""

from __future__ import annotations

from ullage.model.node import Node
from ullage.model.request import MAX_CARDS
from ullage.model.resources import MILLI
from ullage.sim.cards import cards_of
from ullage.sim.rows import Row
from ullage.sim.trace import UNLIMITED

NODE_COLUMNS = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")

_MAX_CORES = 1 << 30
_MEMORY = 1 << 60
"""The list has no memory, so a node has more than any request."""


def read_node(row: Row) -> Node:
    """Return the node in a line of the list."""
    name = row.text("node_name")
    cards = cards_of(name, row.text("gpu_model"), row.count("gpu_capacity_num", maximum=MAX_CARDS))
    cpu_milli = row.count("cpu_num", maximum=_MAX_CORES) * MILLI
    return Node(name, cpu_milli, _MEMORY, cards, max_executors=UNLIMITED)
