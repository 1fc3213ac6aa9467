"""The label of the leader's pod: a Service that selects it reaches only the leader.

So readiness can mean that a replica answers what needs no leader, such as the webhook. The label is written at the
beginning of each term, and removed from the pods of former leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ullage.kube.client.changes import Patch
from ullage.kube.client.kinds import PODS
from ullage.kube.context import KubeContext
from ullage.kube.mirror import Mirror
from ullage.model.error import Conflict, NotFound, UllageError

LEADER = "ullage.io/leader"
"""The label. Its value is `true`."""

_LOOK_S = 0.2
"""Seconds between checks for a new term."""

_AGAIN_S = 1.0
"""Seconds to wait after a failed write."""


class LeaderLabel:
    """`run` keeps the label on the pod of this process while it leads. Outside of a pod nothing is written."""

    def __init__(self, context: KubeContext, mirror: Mirror) -> None:
        self._candidate, self._mirror, self._pods = context.candidate, mirror, context.followed.pods
        self._on_error, self._pause = context.on_error, context.pause
        self._written: int | None = None

    async def run(self) -> None:
        """Write the label whenever a term of this process has begun."""
        while True:
            await self._pause(_LOOK_S if await self.look() else _AGAIN_S)

    async def look(self) -> bool:
        """Write the label where it is missing or outdated. Return whether all writes succeeded."""
        epoch, place = self._candidate.epoch, self._candidate.place
        if not (place.pod and place.uid) or epoch in (None, self._written) or self._mirror.term != epoch:
            return True
        assert epoch is not None
        try:
            for change in self._changes():
                with suppress(NotFound, Conflict):  # the pod is deleted or replaced
                    await self._candidate.write(epoch, change)
        except UllageError as error:
            self._on_error("Pod", f"{place.namespace}/{place.pod}", error)
            return False
        self._written = epoch
        return True

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
