"""Nodes as engines report them, kept through loss of contact and loss of cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ullage.core.books.observation import foreign_id
from ullage.model.gpu import Gpu
from ullage.model.nearest import Missing
from ullage.model.node import Node, NodeState, move_node
from ullage.service.context import ServiceContext
from ullage.service.events import node_facts
from ullage.service.journal import Callback, in_one_write
from ullage.service.store_port import Drop, PutAllocation, PutNode

DRAIN_S = 30.0
"""Seconds for which contact with a node may be lost before its executors are given up."""


class Nodes:
    """Use cases of nodes. `give_up` ends the executors of a node that is given up."""

    def __init__(self, context: ServiceContext, give_up: Callable[[str], None]) -> None:
        self._state, self._journal, self._events = context.state, context.journal, context.events
        self._clock, self._give_up, self._changed = context.clock, give_up, context.changed
        self._lost_at: dict[str, float] = {}

    def resume(self, marks: Iterable[PutNode]) -> None:
        """Restore what was stored of nodes after a restart. It applies once they are reported."""
        self._state.marks = {mark.name: mark for mark in marks}

    def reported(self, node: Node) -> None:
        """Enter a node that registers, comes back, or has new facts. A cordon by an operator stays."""
        known = self._state.nodes.get(node.name)
        self._lost_at.pop(node.name, None)
        moved = self._take_from_others(node)
        if known is not None:
            node = replace(node, state=move_node(known.state, NodeState.READY))
        node = replace(node, gpus=self._with_missing(node))
        mark = self._state.marks.get(node.name, PutNode(node.name))
        node = replace(node, cordoned=mark.cordoned)
        if node == known and not moved:
            return
        self._state.nodes[node.name] = node
        if known is None or known.state is not NodeState.READY:
            self._events.add("node.ready", **node_facts(node))
        if node.topology_note and (known is None or known.topology_note != node.topology_note):
            self._events.add("node.topology-incomplete", message=node.topology_note, node=node.name)
        self._rebuild()
        if known is None and mark.observed_at is not None:
            self._state.allocator.resume_observed(node.name, min(mark.observed_at, self._clock()))

    def heartbeat(self, node: Node) -> None:
        """Enter new facts of a node in contact. A node that is not ready must register first."""
        known = self._state.nodes.get(node.name)
        if known is not None and known.state is NodeState.READY:
            self.reported(node)

    def lost(self, name: str) -> None:
        """Mark a node as lost. Nothing new is placed there, and its executors have `DRAIN_S` to report again."""
        known = self._state.nodes.get(name)
        if known is None or known.state is not NodeState.READY:
            return
        self._state.nodes[name] = replace(known, state=move_node(known.state, NodeState.UNKNOWN))
        self._lost_at[name] = self._clock()
        self._events.add("node.unknown", node=name)
        self._rebuild()

    def expire(self, now: float) -> float | None:
        """Give up nodes without contact for too long. Return when the next one is due."""
        for name, since in tuple(self._lost_at.items()):
            if since + DRAIN_S <= now:
                del self._lost_at[name]
                known = self._state.nodes[name]
                self._state.nodes[name] = replace(known, state=move_node(known.state, NodeState.NOT_READY))
                self._events.add("node.not-ready", node=name)
                self._give_up(name)
                self._rebuild()
        return min((since + DRAIN_S for since in self._lost_at.values()), default=None)

    @in_one_write
    def cordon(self, name: str, cordoned: bool, done: Callback | None = None) -> Node:
        """Place no new work on a node, or again; `done` is called once that is stored.

        Raises:
            NotFound: no such node.

        """
        known = self._state.nodes.get(name)
        if known is None:
            raise Missing("node", name, self._state.nodes)
        if known.cordoned != cordoned:
            self._state.nodes[name] = replace(known, cordoned=cordoned)
            self._journal.write(self._state.mark(name, cordoned=cordoned))
            self._events.add("node.cordoned" if cordoned else "node.uncordoned", node=name)
            self._rebuild()
        self._journal.write(then=done)
        return self._state.nodes[name]

    def release(self, name: str) -> None:
        """Remove a node with its executors.

        Raises:
            NotFound: no such node.

        """
        if name not in self._state.nodes:
            raise Missing("node", name, self._state.nodes)
        self._give_up(name)
        if foreign_id(name) in self._state.fleet.ledger:
            self._journal.write(Drop(PutAllocation, foreign_id(name)))
        if name in self._state.marks:
            self._journal.write(self._state.mark(name, strangers=(), observed_at=None))
        del self._state.nodes[name]
        self._lost_at.pop(name, None)
        self._rebuild()

    def _take_from_others(self, node: Node) -> bool:
        """Remove these cards from other nodes: a card is where it was last reported. Return whether one was moved."""
        here, moved = {gpu.uuid for gpu in node.gpus}, False
        for name, other in tuple(self._state.nodes.items()):
            left = tuple(gpu for gpu in other.gpus if gpu.uuid not in here)
            if name != node.name and len(left) != len(other.gpus):
                self._state.nodes[name] = replace(other, gpus=left)
                moved = True
        return moved

    def _with_missing(self, node: Node) -> tuple[Gpu, ...]:
        """Keep cards that vanished while they were held, as unhealthy."""
        reported = {gpu.uuid for gpu in node.gpus}
        fleet = self._state.fleet
        here = [allocation for allocation in fleet.ledger.values() if allocation.node == node.name]
        held = {uuid: gpu for a in here for uuid, gpu in zip(a.gpus, fleet.last_known(a), strict=True)}
        others = (other for other in self._state.nodes.values() if other.name != node.name)
        elsewhere = {gpu.uuid for other in others for gpu in other.gpus}
        vanished = {uuid: gpu for uuid, gpu in held.items() if uuid not in reported and uuid not in elsewhere}
        indices = [gpu.index for gpu in (*node.gpus, *vanished.values()) if gpu is not None]
        unseen = max(indices, default=-1) + 1
        gone = [gpu or Gpu(uuid, unseen + i) for i, (uuid, gpu) in enumerate(vanished.items())]
        return (*node.gpus, *(replace(gpu, healthy=False) for gpu in gone))

    def _rebuild(self) -> None:
        followed = self._state.allocator.set_nodes(self._state.nodes.values())
        if followed:
            self._journal.write(*map(PutAllocation, followed))
        self._changed(True)
