"""HyperNodes, in clusters that have them: the domain of each tier that a node is in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ullage.kube.client.informer import Changed, Delta, Removed
from ullage.kube.client.kinds import HYPERNODES
from ullage.kube.client.objects import KubeNode, Object
from ullage.kube.client.served import LateInformer
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.model.error import InvalidRequest
from ullage.wire.re2 import matches
from ullage.wire.topology.hypernode import HyperNode, read_hypernode, tiers_of

_GATHER_S = 0.1
"""Seconds for which changes are gathered before the domains are computed again."""


class HyperNodes:
    """Follows HyperNodes and computes the domains of nodes."""

    def __init__(self, context: KubeContext) -> None:
        self._nodes, self._on_error = context.followed.nodes, context.on_error
        self._subscribers: list[tuple[Callable[[str], None], Callable[[], None]]] = []
        self._known: dict[str, HyperNode] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self.informer = LateInformer(context.api, (HYPERNODES,), self._on_hypernode)
        self.controller = Controller("HyperNode", self.reconcile, on_error=context.on_error)
        self._reported: frozenset[str] = frozenset()
        self._nodes.subscribe(self._on_node)

    def subscribe(self, moved: Callable[[str], None], computed: Callable[[], None]) -> None:
        """Call `moved` with the name of each node whose domains have changed, and `computed` after all of these."""
        self._subscribers.append((moved, computed))

    def labels_of(self, node: str) -> Mapping[str, str]:
        return self._labels.get(node, {})

    @property
    def tiers(self) -> list[int]:
        return sorted({each.tier for each in self._known.values()})

    @property
    def tier_names(self) -> dict[str, int]:
        """Return the tiers by their names; of a name with several tiers the lowest."""
        named = sorted(((each.tier, each.tier_name) for each in self._known.values()), reverse=True)
        return {name: tier for tier, name in named if name}

    def _on_hypernode(self, delta: Delta[Object]) -> None:
        self.controller.add(ALL, _GATHER_S)
        found = delta.last if isinstance(delta, Removed) else delta.new
        name = found.metadata.name
        self._known.pop(name, None)
        if isinstance(delta, Removed):
            return
        try:
            self._known[name], dropped = read_hypernode(found.document)
        except InvalidRequest as error:
            self._on_error("HyperNode", name, error)
            return
        for sentence in dropped:
            self._on_error("HyperNode", name, InvalidRequest(sentence))

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        match delta:
            case Changed(last, new) if last.metadata.labels == new.metadata.labels:
                return
        if self._known:
            self.controller.add(ALL, _GATHER_S)

    async def reconcile(self, _key: str) -> None:
        nodes = {node.metadata.name: node.metadata.labels or {} for node in self._nodes.objects.values()}
        last = self._labels
        # Patterns are matched with every name, which may take seconds, so a thread does it.
        self._labels, wrong = await asyncio.to_thread(tiers_of, list(self._known.values()), nodes, matches)
        for sentence in wrong:
            if sentence not in self._reported:
                self._on_error("HyperNode", "", InvalidRequest(sentence))
        self._reported = frozenset(wrong)
        names = [name for name in last.keys() | self._labels.keys() if last.get(name) != self._labels.get(name)]
        for moved, computed in self._subscribers:
            for name in names:
                moved(name)
            computed()
