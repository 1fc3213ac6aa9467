"""Nodes on which a waiting pod is not tried, although its request may fit there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from ullage.core.placing.decision import Refusal
from ullage.model.claim import Claim, Request
from ullage.model.rejection import Code, Cure, Rejection
from ullage.service.cluster import Cluster
from ullage.service.gated import GatedPod

_REFUSED_THERE = Refusal((Rejection(Code.REFUSED_THERE, Cure.NODE_CHANGE),))
_REPELLED = Refusal((Rejection(Code.POD_ANTI_AFFINITY, Cure.NODE_CHANGE),))


class Repelling(Protocol):
    """Pods on nodes that keep others away from there. It is false if there are none."""

    def __bool__(self) -> bool: ...

    def nodes_for(self, claim: Claim) -> frozenset[str]:
        """Return the nodes that a pod is kept away from."""


class KeptAway:
    """Nodes that have refused a pod or an equal request, and nodes whose pods keep it away: None if no pods do."""

    def __init__(self, cluster: Cluster, repelling: Repelling | None) -> None:
        self._cluster, self._repelling = cluster, repelling

    def from_some(self, pods: Iterable[GatedPod]) -> bool:
        """Return whether any of these pods may be kept away from a node; False is certain."""
        return bool(self._cluster.has_rejections or self._repelling or any(pod.avoided for pod in pods))

    def why(self, pod: GatedPod) -> Refusal | None:
        """Return why a pod that fits on no other node is not placed on some; None if it is kept away from none."""
        if self._repelling and self._repelling.nodes_for(pod.request.claim):
            return _REPELLED
        return _REFUSED_THERE if pod.avoided or self._cluster.rejected_by(pod.request) else None

    def elsewhere(self, request: Request, pod: GatedPod | None) -> Request:
        """Return a request, of this pod, without the nodes that it is kept away from."""
        away, asked = self._cluster.rejected_by(request), request.requirement
        if pod is not None:
            away |= pod.avoided.keys()
        if self._repelling:
            away |= self._repelling.nodes_for(request.claim)
        return replace(request, requirement=replace(asked, nodes=asked.nodes.excluding(away))) if away else request
