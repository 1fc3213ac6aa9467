"""CPU, memory and pod slots that pods without cards use, summed by node."""

from __future__ import annotations

from operator import add, sub

from ullage.core.books.usage import OtherUsage
from ullage.service.cluster import Cluster


class CardlessPods:
    """Sums by node. Changes reach the books with `settle`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._has: dict[str, tuple[str, OtherUsage]] = {}
        self._sums: dict[str, OtherUsage] = {}
        self._stale: set[str] = set()

    def put(self, uid: str, node: str, has: OtherUsage) -> None:
        """Set the usage of a pod, on this node only."""
        if self._has.get(uid) == (node, has):
            return
        self.drop(uid)
        if has != OtherUsage():
            self._has[uid] = node, has
            self._sums[node] = OtherUsage(*map(add, self._sums.get(node, OtherUsage()), has))
            self._stale.add(node)

    def drop(self, uid: str) -> None:
        """Remove a pod that is gone or has ended."""
        known = self._has.pop(uid, None)
        if known is None:
            return
        node, has = known
        left = OtherUsage(*map(sub, self._sums.pop(node), has))
        if left != OtherUsage():
            self._sums[node] = left
        self._stale.add(node)

    def clear(self) -> None:
        """Remove all pods."""
        self._stale.update(self._sums)
        self._has.clear()
        self._sums.clear()

    def settle(self) -> None:
        """Write changed sums to the books."""
        stale, self._stale = self._stale, set()
        for node in stale:
            self._cluster.set_other_usage(node, self._sums.get(node, OtherUsage()))
