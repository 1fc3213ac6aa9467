"""The label of the leader's pod: a Service that selects it reaches only the leader.

So readiness can mean that a replica answers what needs no leader, such as the webhook. The label is written at the
beginning of each term, and removed from the pods of former leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ullage.kube.client.changes import Patch
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.kinds import PODS
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import NotFound

LEADER = "ullage.io/leader"
"""The label. Its value is `true`."""


class LeaderLabel:
    """Writes the label on the pod of this process once in each term. Outside of a pod nothing is written."""

    def __init__(self, context: KubeContext, term: ReadyTerm) -> None:
        self._candidate, self._term, self._pods = context.candidate, term, context.followed.pods
        self.controller = Controller("Pod", self.reconcile, on_error=context.on_error, guard=term.begun)
        term.subscribe(self.begin)

    def begin(self) -> None:
        """Write the label as soon as the term has begun."""
        place = self._candidate.place
        if place.pod and place.uid:
            self.controller.add(f"{place.namespace}/{place.pod}")

    async def reconcile(self, _pod: str) -> None:
        """Write the label where it is missing or outdated."""
        epoch = self._term.check()
        for change in self._changes():
            with suppress(NotFound, VersionConflict):  # the pod is deleted or replaced
                await self._candidate.write(epoch, change)

    def _changes(self) -> Iterator[Patch]:
        """Yield the patches. The label of this pod comes first, so that this pod is reachable from then on."""
        place = self._candidate.place
        yield _label(place.namespace, place.pod, place.uid, "true")
        for (namespace, name), pod in list(self._pods.objects.items()):
            labelled = LEADER in (pod.metadata.labels or {})
            if labelled and namespace == place.namespace and pod.metadata.uid != place.uid:
                yield _label(namespace, name, pod.metadata.uid, None)


def _label(namespace: str, name: str, uid: str, value: str | None) -> Patch:
    return Patch(PODS, name, {"metadata": {"uid": uid, "labels": {LEADER: value}}}, namespace)
