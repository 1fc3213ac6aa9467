"""Pods that are bound here as soon as their queue admits them, without kube-scheduler.

They name the direct scheduler. Nothing but the verdict of Ullage decides on their node, so they have no field about
which only kube-scheduler can decide (`wire/direct_pods.py`). One write binds them: there is no gate to open, no node to
nominate, and nobody asks the extender.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.kube.client.errors import is_refusal
from ullage.kube.client.lease import NotLeading
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.evicting.preemption import Preemptor
from ullage.kube.extender.extender import Extender
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.queues.admission import AdmissionController
from ullage.model.error import Conflict, UllageError
from ullage.wire.extender import BindArgs, ExtenderArgs

_AT_ONCE = 16
ROUND_S = 2.0
"""Seconds between two reports of refused pods for which others may be evicted."""

_MOST = 64
"""The most refused pods of one report, the first by priority and age."""


class DirectBinds:
    """Binds admitted pods, and has room made for refused ones if there is a `preemptor`."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        admission: AdmissionController,
        extender: Extender,
        preemptor: Preemptor | None = None,
    ) -> None:
        self._context = context
        self._cluster, self._nodes, self._term = context.cluster, context.followed.nodes, term
        self._admission, self._extender, self._preemptor = admission, extender, preemptor
        self._places: Mapping[str, str] = {}
        self._bound: set[str] = set()
        """Pods that were bound and whose node the watch has not reported yet."""
        self._binds = Controller("Pod", self._bind, on_error=context.on_error, guard=term.begun, at_once=_AT_ONCE)
        refusals = Controller("Pod", self._report_refused, on_error=context.on_error, guard=term.begun)
        refusals.add(ALL)
        self.controllers = (self._binds, refusals)
        admission.subscribe(self._on_places)
        term.subscribe(self._bound.clear)

    def _on_places(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._bound &= places.keys()
        for uid in places.keys() - self._bound:
            self._binds.add(uid)

    async def _bind(self, uid: str) -> None:
        pod = self._admission.pod(uid)
        if pod is None or uid not in self._places or uid in self._bound:
            return
        node = self._places[uid] or self._best_node(pod)
        namespace, name = pod.key
        try:
            await self._extender.bind(BindArgs(name, namespace, uid, node))
        except NotLeading:
            raise
        except UllageError as error:
            if is_refusal(error):
                self._admission.gates.refused(uid)
            raise
        self._bound.add(uid)

    def _best_node(self, pod: Pod) -> str:
        """Return the best node for a pod that waits in no queue, as kube-scheduler would find it.

        Raises:
            Conflict: none fits; the extender has written the reasons.

        """
        names = [node.metadata.name for node in self._nodes.objects.values()]
        document = dict(pod.document)
        found = self._extender.filter(ExtenderArgs(pod=document, node_names=names)).node_names
        scores = self._extender.prioritize(ExtenderArgs(pod=document, node_names=found)) if found else {}
        if not scores:
            raise Conflict("no node fits it", code="no-room")
        return max(scores, key=lambda node: scores[node])

    async def _report_refused(self, _key: str) -> float:
        """Tell the preemptor on which nodes evictions could help refused pods, as answers to kube-scheduler do."""
        if self._preemptor is None:
            return ROUND_S
        lowest, refusals = self._cluster.holders.lowest_priority, self._admission.gates.refusals()
        names = list(self._term.mirror.machines.by_name)
        found = (
            request
            for uid, refusal in refusals.items()
            if refusal.curable and (request := self._admission.gates.waiting(uid)) and self._is_direct(uid)
        )
        raised = [each for each in found if each.claim.priority > lowest and each.claim.gang is None]
        for request in sorted(raised, key=lambda each: (-each.claim.priority, each.claim.created_at))[:_MOST]:
            offers = self._cluster.offers(request, names, expected=False)
            helps = [name for refusal, refused in offers.refused if refusal.helps for name in refused]
            if not offers.names and helps:
                self._preemptor.refused([(request, helps)])
        return ROUND_S

    def _is_direct(self, uid: str) -> bool:
        pod = self._admission.pod(uid)
        return pod is not None and self._context.is_direct(pod)
