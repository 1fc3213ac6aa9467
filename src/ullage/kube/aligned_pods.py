"""Pods without cards that are aligned to zones: their offers, their places, and what they hold.

Zones, labels and taints refuse a node here: kube-scheduler counts CPU, memory and devices of these pods itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ullage.core.placing.decision import Refusal
from ullage.core.placing.offers import NodeRefusal
from ullage.core.verdict.sentences import MEANINGS
from ullage.kube.context import KubeContext
from ullage.model.affinity import EVERY_NODE
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.error import Conflict, UllageError
from ullage.model.holding import PodHolding, Use
from ullage.model.rejection import Code
from ullage.service.node_offers import NodeOffers
from ullage.wire.document import Document
from ullage.wire.pod.aligned import aligned_allocation, read_aligned
from ullage.wire.pod.placement import placement_annotations, read_placement

_LEAST = -1.0
"""How much a node that is not in the books scores below the worst that is."""


class AlignedPods:
    """Reads, offers and holds. It keeps nothing: what such pods hold is in the ledger."""

    def __init__(self, context: KubeContext) -> None:
        self._cluster, self._domain = context.cluster, context.domain
        self._align_all, self._pods = context.pod_settings.align_all, context.followed.pods

    def read(self, pod: Document) -> Request | None:
        """Return the request of a pod that asks for no cards; None if it is not aligned.

        Raises:
            InvalidRequest: its policy or an amount cannot be read.

        """
        return read_aligned(pod, self._domain, align_all=self._align_all)

    def offers(self, request: Request, nodes: Sequence[str], *, expected: bool) -> NodeOffers:
        """Return which nodes fit by zones, labels and taints.

        A node that is not in the books fits if the pod need not be aligned.
        """
        found = self._cluster.offers(request, nodes, expected=expected)
        if request.requirement.alignment.required:
            return found
        unknown = [
            node
            for refusal, names in found.refused
            for node in names
            if Code.NODE_UNKNOWN in (each.code for each in refusal.rejections)
        ]
        if not unknown:
            return found
        least = found.scores.min(initial=0.0) + _LEAST
        refused = [(why, names) for why, names in found.refused if not set(names) <= set(unknown)]
        return NodeOffers(
            [*found.names, *unknown], np.concatenate([found.scores, np.full(len(unknown), least)]), refused
        )

    def place(self, request: Request, node: str) -> dict[str, str]:
        """Reserve the place of a pod on a node. Return the annotations that say where it lies; none if unknown.

        Raises:
            Conflict: the zones of the node have no room for it by now.

        """
        if node not in self._cluster.allocator.fleet.row_of:
            return {}
        found = self._cluster.reserve(request, node)
        if isinstance(found, Refusal):
            raise Conflict(f"{node} has no room for it by now: {found}", code="bind-no-room")
        return {} if found.placement is None else placement_annotations(found.placement, self._domain)

    def hold(self, pod: Document, node: str) -> None:
        """Enter what a pod on a node holds: where its annotations say, else where its kubelet probably put it.

        A pod for which there is no such room holds nothing that is known.

        Raises:
            InvalidRequest: its request or its place cannot be read.

        """
        request = self.read(pod)
        if request is None:
            return
        placement = read_placement(pod, self._domain)
        if placement is not None:
            self._cluster.adopt(aligned_allocation(request, node, placement))
            return
        known = self._cluster.held(request.uid)
        if known is None and node in self._cluster.allocator.fleet.row_of:
            try:
                found = self._cluster.reserve(_regardless(request), node)
            except UllageError:
                return
            if isinstance(found, Allocation) and found.state is AllocationState.ASSUMED:
                self._cluster.confirm(request.uid)

    def named(self, use: Use, node: str) -> Use:
        """Return usage with the uids of the pods without cards that are in the ledger, which it names by name alone."""
        return replace(use, pods=tuple(self._named(pod, node) for pod in use.pods))

    def _named(self, holding: PodHolding, node: str) -> PodHolding:
        pod = None if holding.uid else self._pods.objects.get((holding.namespace, holding.name))
        if pod is None or pod.spec.node_name != node:
            return holding
        held = self._cluster.held(pod.metadata.uid)
        return holding if held is None or held.gpus else replace(holding, uid=pod.metadata.uid)


def refusal_sentence(refusal: NodeRefusal) -> str:
    """Return why zones refuse a node: the code, and what it means."""
    codes = Counter(rejection.code for rejection in refusal.rejections)
    return "; ".join(f"{code}: {MEANINGS[code]}" for code in codes)


def _regardless(request: Request) -> Request:
    """Return the request of a pod that is on its node, whatever the labels and taints of that are by now."""
    return replace(request, requirement=replace(request.requirement, nodes=EVERY_NODE))
