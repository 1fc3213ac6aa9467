"""Nodes that rejected a bound request although it should fit by the books."""

from __future__ import annotations

from ullage.model.request import ResourceRequirement

_NOWHERE: frozenset[str] = frozenset()


class RejectedNodes:
    """Equal requests are not offered such a node until something changes on it."""

    def __init__(self) -> None:
        self._nodes: dict[ResourceRequirement, frozenset[str]] = {}
        self.changes = 0
        """The number of rejections that were dropped."""

    def __bool__(self) -> bool:
        """Return whether any node has rejected a request."""
        return bool(self._nodes)

    def add(self, requirement: ResourceRequirement, node: str) -> None:
        """Note that a node rejected such a request."""
        self._nodes[requirement] = self._nodes.get(requirement, _NOWHERE) | {node}

    def drop(self, node: str) -> None:
        """Drop the rejections of a node on which something changed."""
        for requirement, nodes in list(self._nodes.items()):
            if node in nodes:
                self.changes += 1
                self._nodes[requirement] = nodes - {node}
                if not self._nodes[requirement]:
                    del self._nodes[requirement]

    def of(self, requirement: ResourceRequirement) -> frozenset[str]:
        """Return the nodes that have rejected such a request."""
        return self._nodes.get(requirement, _NOWHERE) if self._nodes else _NOWHERE
