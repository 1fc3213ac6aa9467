"""Creates the ResourceClaims that pods of our scheduler refer to, and whose words the webhook kept in an annotation.

A claim has its pod as owner, so it is deleted with the pod. It asks for cards of one DeviceClass and for nothing else,
whatever the annotation says: a user gets no right by writing it.
"""

from __future__ import annotations

from ullage.kube.client.changes import Create
from ullage.kube.client.informer import Added, Changed, Delta
from ullage.kube.client.kinds import RESOURCE_CLAIMS
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import AlreadyExists
from ullage.wire.dra.claim import pod_claims
from ullage.wire.dra.made_claim import ASKED_CLAIMS, claim_body, decode_asked


class ClaimMaking:
    """Makes the missing claims of waiting pods while this process leads."""

    def __init__(self, context: KubeContext, term: ReadyTerm, device_class: str, scheduler: str) -> None:
        self._pods, self._candidate, self._term = context.followed.pods, context.candidate, term
        self._class, self._scheduler, self._key = device_class, scheduler, context.key(ASKED_CLAIMS)
        self.controller = Controller("Pod", self.reconcile, on_error=context.on_error, guard=term.begun)
        self._pods.subscribe(self._on_pod)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added | Changed) and self._is_waiting(delta.new):
            self.controller.add(delta.new.key)

    def _is_waiting(self, pod: Pod) -> bool:
        known = self._key in (pod.metadata.annotations or {}) and pod.spec.scheduler_name == self._scheduler
        return known and not (pod.spec.node_name or pod.finished or pod.terminating)

    async def reconcile(self, key: tuple[str, str]) -> None:
        """Create the claims of a pod that do not exist yet."""
        pod, epoch = self._pods.objects.get(key), self._term.check()
        if pod is None or not self._is_waiting(pod):
            return
        metadata = pod.metadata
        asked = decode_asked((metadata.annotations or {})[self._key], self._key)
        owner = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        for claim in pod_claims(pod.document):
            if claim.made or claim.claim not in asked:
                continue
            body = claim_body(claim.claim, asked[claim.claim], self._class, owner)
            try:
                await self._candidate.write(epoch, Create(RESOURCE_CLAIMS, body, metadata.namespace))
            except AlreadyExists:
                continue
