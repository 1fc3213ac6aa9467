"""Events on new pods whose annotations the webhook removed, because only a scheduler writes these."""

from __future__ import annotations

from datetime import datetime

from ullage.kube.client.informer import Added, Delta
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.events import AGAIN_S, PodEvent, Reason
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.wire.pod.bind import REMOVED


class RemovedAnnotations:
    """Records an event on each new pod from which the webhook removed annotations.

    The webhook cannot: a pod has no uid yet when it is admitted, and no replica but the leader records events. A new
    leader reports pods of the last minutes again.
    """

    def __init__(self, context: KubeContext, term: ReadyTerm) -> None:
        self._pods, self._record_event, self._now = context.followed.pods, context.record_event, context.now
        self._key = f"{context.domain}/{REMOVED}"
        self._pods.subscribe(self._on_pod)
        term.subscribe(self._report_again)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added):
            self._report(delta.new)

    def _report_again(self) -> None:
        for pod in self._pods.objects.values():
            self._report(pod)

    def _report(self, pod: Pod) -> None:
        removed = (pod.metadata.annotations or {}).get(self._key, "")
        if removed and self._now() - _created_at(pod) < AGAIN_S:
            keys = removed.replace(",", ", ")
            message = f"annotations were removed at creation, as only a scheduler writes them: {keys}"
            self._record_event(PodEvent.on(pod, Reason.ANNOTATIONS_REMOVED, message))


def _created_at(pod: Pod) -> float:
    """Return the time of creation in seconds since 1970; 0 if it cannot be read."""
    try:
        return datetime.fromisoformat(pod.metadata.creation_timestamp or "").timestamp()
    except ValueError:
        return 0.0
