"""Pods that Ullage binds itself, without kube-scheduler: those of a scheduler name of their own."""

from __future__ import annotations

from ullage.model.error import invalid
from ullage.wire.dialect import PodSettings
from ullage.wire.document import Document
from ullage.wire.pod.request import PodRequest
from ullage.wire.scheduler_fields import fields_for_scheduler

_SUFFIX = "-direct"


def direct_scheduler(scheduler: str) -> str:
    """Return the scheduler name of pods that Ullage binds itself; `scheduler` is that of its other pods, or ""."""
    return scheduler and scheduler + _SUFFIX


def check_direct(pod: Document, asked: PodRequest | None, settings: PodSettings, scheduler: str) -> None:
    """Refuse a pod of the direct scheduler that Ullage cannot bind alone; it would serve the pod as `scheduler`.

    Raises:
        InvalidRequest: it requests no card, or only kube-scheduler can decide about one of its fields.

    """
    fix = f"name {scheduler} as spec.schedulerName, or leave it out"
    if asked is None:
        raise invalid("spec.schedulerName", direct_scheduler(scheduler), f"the pod requests no card; {fix}")
    for path in fields_for_scheduler(pod, settings):
        raise invalid(path, "set", f"only kube-scheduler decides about it; {fix}")
