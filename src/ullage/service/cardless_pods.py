"""CPU, memory and pod slots that pods without cards use, summed by node."""

from __future__ import annotations

from operator import add, sub

from ullage.core.books.usage import OtherUsage
from ullage.service.cluster import Cluster


class CardlessPods:
    """Sums by node. `write_to_books` writes changes to the books."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._usage_of: dict[str, tuple[str, OtherUsage]] = {}
        self._sums: dict[str, OtherUsage] = {}
        self._stale: set[str] = set()

    def put(self, uid: str, node: str, usage: OtherUsage) -> None:
        """Set the usage of a pod, on this node only."""
        if self._usage_of.get(uid) == (node, usage):
            return
        self.drop(uid)
        if usage != OtherUsage():
            self._usage_of[uid] = node, usage
            self._sums[node] = OtherUsage(*map(add, self._sums.get(node, OtherUsage()), usage))
            self._stale.add(node)

    def drop(self, uid: str) -> None:
        """Remove a pod that is gone or has ended."""
        known = self._usage_of.pop(uid, None)
        if known is None:
            return
        node, usage = known
        left = OtherUsage(*map(sub, self._sums.pop(node), usage))
        if left != OtherUsage():
            self._sums[node] = left
        self._stale.add(node)

    def clear(self) -> None:
        """Remove all pods."""
        self._stale.update(self._sums)
        self._usage_of.clear()
        self._sums.clear()

    def write_to_books(self) -> None:
        """Write changed sums to the books."""
        stale, self._stale = self._stale, set()
        for node in stale:
            self._cluster.set_other_usage(node, self._sums.get(node, OtherUsage()))
