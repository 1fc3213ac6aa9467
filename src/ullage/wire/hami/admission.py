"""Pods with cards that HAMi's webhook refuses, and pods that it ignores."""

from __future__ import annotations

from ullage.model.error import invalid
from ullage.wire.document import Document, mapping, section
from ullage.wire.pod.containers import containers_of
from ullage.wire.vendors.family import ANNOTATIONS

IGNORED = f"{ANNOTATIONS}/webhook"
"""The label with which a pod or its namespace is ignored: `ignore`."""


def ignores(labels: Document) -> bool:
    """Return whether a pod, or all pods of a namespace, are ignored, by the labels."""
    return labels.get(IGNORED) == "ignore"


def check_pod(pod: Document, *, scheduler: str = "") -> None:
    """Refuse a pod with cards that could access other cards, or that has a node; `scheduler` would place it."""
    spec = section(pod, "spec")
    if not spec.get("containers"):
        raise invalid("spec.containers", spec.get("containers"), "a pod has containers")
    if scheduler and spec.get("nodeName"):
        fix = f"{scheduler} chooses the node of a pod with cards; leave it out, or use nodeSelector"
        raise invalid("spec.nodeName", spec["nodeName"], fix)
    for _, path, container in containers_of(spec):
        context = mapping(container.get("securityContext"), f"{path}.securityContext")
        if context.get("privileged") is True:
            fix = "a privileged container sees all cards of its node; leave it out of pods with parts of cards"
            raise invalid(f"{path}.securityContext.privileged", True, fix)
