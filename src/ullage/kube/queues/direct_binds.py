"""Pods that are bound here as soon as their queue admits them, without kube-scheduler.

They name the direct scheduler. Nothing but the verdict of Ullage decides on their node, so they have no field about
which only kube-scheduler can decide (`wire/direct_pods.py`). One write binds them: there is no gate to open, no node to
nominate, and nobody asks the extender.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.kube.client.errors import Throttled, VersionConflict, is_refusal
from ullage.kube.client.lease import NotLeading
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.device_plugins import DevicePlugins, NodeLocked
from ullage.kube.extender.extender import Extender
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.queues.admission import AdmissionController
from ullage.model.error import Conflict, UllageError
from ullage.wire.extender import BindArgs, ExtenderArgs

_AT_ONCE = 16
_BUSY_S = 0.1
"""Seconds until a pod is looked at again whose node serves another one."""

_NOT_OF_THE_NODE = (NodeLocked, Throttled, VersionConflict)
"""Refusals that say nothing against a node: the same bind may succeed a moment later."""


class DirectBinds:
    """Binds admitted pods."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        admission: AdmissionController,
        extender: Extender,
        plugins: DevicePlugins,
    ) -> None:
        self._nodes, self._admission, self._extender = context.followed.nodes, admission, extender
        self._read_pod, self._plugins = context.read_pod, plugins
        self._places: Mapping[str, str] = {}
        self._bound: set[str] = set()
        """Pods that were bound and whose node the watch has not reported yet."""
        self.controller = Controller("Pod", self._bind, on_error=context.on_error, guard=term.begun, at_once=_AT_ONCE)
        admission.subscribe(self._on_places)
        term.subscribe(self._bound.clear)

    def _on_places(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._bound &= places.keys()
        for uid in places.keys() - self._bound:
            self.controller.add(uid)

    async def _bind(self, uid: str) -> float | None:
        pod = self._admission.pod(uid)
        if pod is None or uid not in self._places or uid in self._bound:
            return None
        node = self._places[uid] or self._best_node(pod)
        if self._plugins.is_busy(node) and self._needs_lock(pod, node):
            return _BUSY_S  # pods that waited for one node would keep those of all others from being bound
        namespace, name = pod.key
        try:
            await self._extender.bind(BindArgs(name, namespace, uid, node))
        except NotLeading:
            raise
        except UllageError as error:
            if is_refusal(error) and not isinstance(error, _NOT_OF_THE_NODE):
                self._admission.gates.refused(uid)
            raise
        self._bound.add(uid)
        return None

    def _needs_lock(self, pod: Pod, node: str) -> bool:
        """Return whether a device plugin of the node serves the pod, which it does one pod at a time."""
        asked = self._read_pod(pod.document)
        return asked is not None and any(self._plugins.asked(each, node) for each in asked.by_family)

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
