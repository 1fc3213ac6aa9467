"""Pods that have no card by the books: what they take of the CPU and memory of their nodes, and of places for pods."""

from __future__ import annotations

from operator import add, sub

from ullage.core.books.fleet import Beside
from ullage.service.cluster import Cluster


class Bystanders:
    """Sums by node. `settle` enters them in the books; until then there is no trace of a change there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._has: dict[str, tuple[str, Beside]] = {}
        self._sums: dict[str, Beside] = {}
        self._stale: set[str] = set()

    def put(self, uid: str, node: str, has: Beside) -> None:
        """A pod has this of a node, and of no other."""
        if self._has.get(uid) == (node, has):
            return
        self.drop(uid)
        if has != Beside():
            self._has[uid] = node, has
            self._sums[node] = Beside(*map(add, self._sums.get(node, Beside()), has))
            self._stale.add(node)

    def drop(self, uid: str) -> None:
        """A pod is gone, or has come to an end."""
        known = self._has.pop(uid, None)
        if known is None:
            return
        node, has = known
        left = Beside(*map(sub, self._sums.pop(node), has))
        if left != Beside():
            self._sums[node] = left
        self._stale.add(node)

    def clear(self) -> None:
        """Nobody is there, as far as is known."""
        self._stale.update(self._sums)
        self._has.clear()
        self._sums.clear()

    def settle(self) -> None:
        """Bring the books up to date."""
        stale, self._stale = self._stale, set()
        for node in stale:
            self._cluster.set_beside(node, self._sums.get(node, Beside()))
