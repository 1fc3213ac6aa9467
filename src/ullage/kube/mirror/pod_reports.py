"""What is reported of pods on nodes, each thing once: records that cannot be used, and annotations that changed."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.events import PodEvent, Reason
from ullage.model.error import Conflict, UllageError


class PodReports:
    """Calls the error handler, and records events."""

    def __init__(self, context: KubeContext) -> None:
        self._on_error, self._record_event = context.on_error, context.record_event
        self._errors: dict[str, str] = {}
        """The last error of each pod, by uid."""
        self._changes: dict[str, tuple[Pod, str]] = {}
        """The last report for each pod that its request or record has changed."""

    def forget_changes(self) -> None:
        self._changes.clear()

    def drop(self, uid: str) -> None:
        self._errors.pop(uid, None)
        self._changes.pop(uid, None)

    def error(self, pod: Pod, error: UllageError, *, unknown: bool) -> None:
        """Report an error, unless it is the last one of the pod; `unknown`: its cards are."""
        if self._errors.get(pod.metadata.uid) != error.message:
            self._errors[pod.metadata.uid] = error.message
            self._on_error("Pod", "/".join(pod.key), error)
            if unknown:
                self._record_unknown(pod, error.message)

    def change(self, pod: Pod, keys: Iterable[str], why: str) -> None:
        """Report that annotations of a pod on a node have changed, and what that means."""
        names = ", ".join(f"metadata.annotations.{key}" for key in keys)
        message = f"{names}: changed after the pod was placed: {why}; restore it, or create another pod"
        _, reported = self._changes.get(pod.metadata.uid, (pod, ""))
        if reported != message:
            self._changes[pod.metadata.uid] = pod, message
            self._on_error("Pod", "/".join(pod.key), Conflict(message, code="request-changed"))
            self._record_change(pod, message)

    def again(self, unknown: Iterable[Pod]) -> None:
        """Record the events again: for pods whose cards are unknown, and for changes."""
        for pod in unknown:
            if pod.metadata.uid in self._errors:
                self._record_unknown(pod, self._errors[pod.metadata.uid])
        for pod, message in self._changes.values():
            self._record_change(pod, message)

    def _record_change(self, pod: Pod, message: str) -> None:
        self._record_event(PodEvent.on(pod, Reason.REQUEST_CHANGED, message))

    def _record_unknown(self, pod: Pod, why: str) -> None:
        message = f"no card of {pod.spec.node_name} takes new work while it is unknown which of them the pod has: {why}"
        self._record_event(PodEvent.on(pod, Reason.CARDS_UNKNOWN, message))
