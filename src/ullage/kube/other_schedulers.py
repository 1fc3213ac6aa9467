"""Other schedulers that bind pods to the same nodes, as HAMi's: what they bound last.

They lock a node while they bind a pod to it. The watch of pods may be behind that of nodes, so the next owner of the
lock may not know what was bound under the last one. It reads the pods of the node from the API. Clusters where no other
scheduler was seen are spared this.
"""

from __future__ import annotations

from collections.abc import Callable

from ullage.kube.client.api import Selection
from ullage.kube.client.informer import Delta, Removed
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.model.error import Conflict, Unavailable
from ullage.wire.hami.lock import read_lock
from ullage.wire.hami.results import node_in


class OtherSchedulers:
    """`observe` enters a pod with a node in the books, unless they have it."""

    def __init__(self, context: KubeContext, observe: Callable[[Pod], None]) -> None:
        self._api, self._is_own, self._observe = context.api, context.is_own, observe
        self._pods = context.followed.pods
        self._families = context.pod_settings.families
        self._locks = {each.lock.annotation for each in self._families if each.lock.annotation}
        self.seen = False
        """Whether a pod of another scheduler had a record of cards, or the lock of a node."""
        self._pods.subscribe(self._on_pod)
        context.followed.nodes.subscribe(self._on_node)

    async def catch_up(self, node: str) -> None:
        """Enter the pods on a node that the watch has not reported yet.

        Raises:
            Conflict: they could not be read now. UllageError: they may not be read.

        """
        if not self.seen:
            return
        try:
            pages = [page async for page in self._api.pages(PODS, Selection(fields=f"spec.nodeName={node}"))]
        except Unavailable as error:  # nothing was written: the caller may let go of its lock
            raise Conflict(f"the pods of {node} could not be read: {error.message}", code="node-unread") from error
        for pod in (each for page in pages for each in page.items):
            self._observe(pod)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if self.seen or isinstance(delta, Removed):
            return
        named = node_in(delta.new.metadata.annotations or {}, self._families)
        self.seen = bool(named) and self._is_of_another(delta.new)

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        if self.seen or isinstance(delta, Removed):
            return
        annotations = delta.new.metadata.annotations or {}
        self.seen = any(self._locked_by_another(annotations[key]) for key in self._locks & annotations.keys())

    def _locked_by_another(self, text: str) -> bool:
        """Return whether a lock may be of a pod of another scheduler: one that is not known here yet may be."""
        owner = self._pods.objects.get(read_lock(text).key)
        return owner is None or self._is_of_another(owner)

    def _is_of_another(self, pod: Pod) -> bool:
        return bool(pod.spec.scheduler_name) and not self._is_own(pod)
