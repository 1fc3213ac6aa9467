"""A machine that runs executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.node_state import NodeState
from ullage.model.resources import MILLI, Resources
from ullage.model.taint import Taint
from ullage.model.topology import Topology

__all__ = ["MAX_EXECUTORS", "Node", "NodeState", "move_node"]

MAX_EXECUTORS = 128
"""The most executors of a node unless it sets another number."""


_MOVES = {
    (NodeState.READY, NodeState.UNKNOWN),
    (NodeState.UNKNOWN, NodeState.NOT_READY),
    (NodeState.UNKNOWN, NodeState.READY),
    (NodeState.NOT_READY, NodeState.READY),
}


def move_node(state: NodeState, to: NodeState) -> NodeState:
    """Return the state after a transition; a transition to the present state does nothing.

    Raises:
        Conflict: the transition is not allowed (a Ready node must be Unknown before it is NotReady).

    """
    if state is not to and (state, to) not in _MOVES:
        raise Conflict(f"a node cannot go from {state} to {to}", code="wrong-state")
    return to


@dataclass(frozen=True, slots=True)
class Node:
    """Inventory of one machine. `reserved` is reserved from work: allocatable = capacity - reserved.

    A `topology` of None is not known; `topology_note` says what of it was refused or left out. `taints` are those that
    keep new work off that does not tolerate them.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    reserved: Resources = Resources()
    max_executors: int = MAX_EXECUTORS
    labels: dict[str, str] = field(default_factory=dict)
    arch: str | None = None
    os: str | None = None
    state: NodeState = NodeState.READY
    cordoned: bool = False
    gpu_source: str | None = None
    topology: Topology | None = None
    topology_note: str = ""
    taints: tuple[Taint, ...] = ()

    @property
    def schedulable(self) -> bool:
        """Whether new executors may be placed here."""
        return self.state is NodeState.READY and not self.cordoned

    @property
    def capacity(self) -> Resources:
        """All there is, healthy or not."""
        return Resources(self.cpu_milli, self.memory_bytes, len(self.gpus) * MILLI)

    @property
    def allocatable(self) -> Resources:
        """What work may hold: usable cards, and cpu and memory less what is reserved."""
        usable = sum(gpu.usable for gpu in self.gpus)
        return Resources(
            max(0, self.cpu_milli - self.reserved.cpu_milli),
            max(0, self.memory_bytes - self.reserved.memory_bytes),
            usable * MILLI,
        )
