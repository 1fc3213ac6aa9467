"""Places for one pod that is admitted or moves up: near others of its gang, and not where it is kept away from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ullage.core.placing.decision import Choice
from ullage.core.placing.draft import place_run
from ullage.core.placing.subgroups import Neighbours, nodes_by_subgroup, rows_near
from ullage.model.affinity import NODE_NAME
from ullage.model.claim import Claim, GangClaim, Request
from ullage.service.cluster import Cluster
from ullage.service.gated import GatedPod
from ullage.service.kept_away import KeptAway


@dataclass(frozen=True, slots=True)
class PlaceSearch:
    """`pods` wait or are admitted; `running` are the gang and the node of each member that has its cards.

    `now` returns the time in seconds since 1970.
    """

    cluster: Cluster
    kept_away: KeptAway
    pods: Mapping[str, GatedPod]
    running: Mapping[str, tuple[GangClaim, str]]
    now: Callable[[], float]

    def choose(self, pod: GatedPod, rows: list[int]) -> Choice | None:
        """Return the best place of a pod on these rows of the books; None if there is none."""
        books = self.cluster.allocator
        among = np.zeros(len(books.fleet.nodes), dtype=np.bool_)
        among[rows] = True
        nominations = books.nominations.without(pod.request.uid)
        request = self.elsewhere(pod.request)
        found, _ = place_run(books.fleet, books.rules, [request], self.now(), nominations=nominations, rows=among)
        return next(iter(found), None)

    def place(self, pod: GatedPod) -> Choice | None:
        """Return the best place of a pod, on its earlier node if that has room."""
        return next((found for rows in self._tried(pod) if (found := self.choose(pod, rows)) is not None), None)

    def _tried(self, pod: GatedPod) -> Iterator[list[int]]:
        """Yield rows of nodes to try: first its earlier node, then all except those to avoid.

        Requests that go to one node together have only their earlier node.
        """
        fleet, gang = self.cluster.allocator.fleet, pod.request.claim.gang
        if pod.hint in fleet.row_of and pod.hint not in pod.avoided:
            yield [fleet.row_of[pod.hint]]
        if gang is not None and gang.within == NODE_NAME:
            return
        near = None if gang is None else rows_near(fleet, gang, self._neighbours(gang.key))
        yield [row for name, row in fleet.row_of.items() if name not in pod.avoided and (near is None or near[row])]

    def near(self, uid: str) -> Container[str] | None:
        """Return the nodes of the required domains where others of the gang of an admitted pod are; None for any."""
        pod = self.pods.get(uid)
        gang = None if pod is None or pod.gated else pod.request.claim.gang
        if gang is None or all(within in (None, NODE_NAME) for within in gang.required_levels):
            return None
        fleet = self.cluster.allocator.fleet
        near = rows_near(fleet, gang, self._neighbours(gang.key, besides=uid))
        return frozenset(name for name, row in fleet.row_of.items() if near[row])

    def elsewhere(self, request: Request) -> Request:
        """Return the request of one of the pods without the nodes that it is kept away from."""
        return self.kept_away.elsewhere(request, self.pods.get(request.uid))

    def _neighbours(self, key: str, besides: str = "") -> Neighbours:
        """Return the nodes of the members of a gang, `besides` one, that have their cards or a place."""
        others = (pod for uid, pod in self.pods.items() if uid != besides)
        places = [(pod.request.claim, pod.promise.node) for pod in others if pod.promise is not None]
        there = [(claim, node) for claim, node in places if claim.gang is not None and claim.gang.key == key]
        there += [(Claim(gang=gang), node) for gang, node in self.running.values() if gang.key == key]
        return nodes_by_subgroup(there)
