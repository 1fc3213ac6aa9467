"""What HAMi's scheduler gave to pods: to those on a node, and to those that it has not bound yet.

HAMi's scheduler writes its choice on a pod when it filters nodes. It counts the pod from then on, and does not look
again when it binds it. So the cards of a choice are held as those of a bound pod are, until the choice changes, or the
pod is gone or gets its node.
"""

from __future__ import annotations

from functools import partial

from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.mirror.bound_requests import Held
from ullage.model.error import InvalidRequest
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.document import Document
from ullage.wire.hami.placed import hami_allocations
from ullage.wire.hami.results import NODE

_SLICES = ResourceRequirement(gpu_count=1, part=Part(), cards=CardSelector(isolation=Isolation.PARTITIONED))


class PlacedByHami:
    """Pods of the scheduler of this process (`context.scheduler`) have no choice: their cards are written at bind."""

    def __init__(self, context: KubeContext) -> None:
        self._cluster, self._read_pod, self._scheduler = context.cluster, context.read_pod, context.scheduler
        self._families = context.pod_settings.families
        self._chosen: set[str] = set()
        """Pods without a node whose cards are held, by uid."""

    def clear(self) -> None:
        self._chosen.clear()

    def read(self, document: Document) -> Held | InvalidRequest:
        """Return what a pod on a node holds; an error if its record cannot be read, nothing without one."""
        try:
            asked = self._read_pod(document)
        except InvalidRequest:
            asked = None
        try:
            charge_on = self._cluster.charge_on
            slices_of = partial(charge_on, _SLICES)
            return hami_allocations(document, asked, charge_on, self._families, slices_of=slices_of)
        except InvalidRequest as error:
            return error

    def choose(self, pod: Pod) -> str:
        """Hold the cards that were chosen for a pod without a node. Return the node of an earlier choice, or ""."""
        uid, found = pod.metadata.uid, self._choice(pod)
        known = self._cluster.held_by_family(uid) if uid in self._chosen else ()
        if known and [(each.node, each.gpus) for each in known] == [(each.node, each.gpus) for each in found]:
            return ""
        freed = self.drop(uid)
        if found:
            self._cluster.adopt(*found)
            self._chosen.add(uid)
        return freed

    def drop(self, uid: str) -> str:
        """Free what was chosen for a pod, and return the node; "" if nothing was."""
        held = self._cluster.held_by_family(uid) if uid in self._chosen else ()
        self._chosen.discard(uid)
        if held:
            self._cluster.free(uid)
        return next((each.node for each in held), "")

    def _choice(self, pod: Pod) -> Held:
        """Return what was chosen for a pod; nothing if that is not readable, or not of cards of the node.

        A bound pod with such a record closes its node. This one has nothing yet, and its scheduler may choose again.
        """
        node, scheduler = (pod.metadata.annotations or {}).get(NODE, ""), pod.spec.scheduler_name
        row_of, nodes = self._cluster.allocator.fleet.row_of, self._cluster.allocator.fleet.nodes
        if node not in row_of or not self._scheduler or scheduler in ("", self._scheduler):
            return ()
        document = pod.document
        found = self.read({**document, "spec": {**document["spec"], "nodeName": node}})
        there = {gpu.uuid for gpu in nodes[row_of[node]].gpus}
        given = [each.gpus for each in found] if isinstance(found, tuple) else []
        return found if isinstance(found, tuple) and all(gpus and there.issuperset(gpus) for gpus in given) else ()
