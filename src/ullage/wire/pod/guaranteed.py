"""Pods that a kubelet gives exclusive CPUs and memory: those of the class Guaranteed."""

from __future__ import annotations

from ullage.model.resources import MILLI
from ullage.wire.document import Document, mapping, section
from ullage.wire.pod.containers import container_amount, containers_of


def has_own_cpus(pod: Document) -> bool:
    """Return whether the kubelet's static CPU and memory managers serve the containers of a pod.

    They serve pods of the class Guaranteed, except those that state their resources for the pod as a whole. The class
    is the one that the API server wrote; a pod that has none yet is Guaranteed if every container limits its CPU and
    its memory and requests no less.
    """
    spec = section(pod, "spec")
    own = mapping(spec.get("resources"), "spec.resources")
    if own.get("requests") or own.get("limits"):
        return False
    qos = section(pod, "status").get("qosClass")
    if qos:
        return bool(qos == "Guaranteed")
    return all(
        0 < limit == container_amount(container, path, resource, units, kinds=("requests", "limits"))
        for _, path, container in containers_of(spec)
        for resource, units in (("cpu", MILLI), ("memory", 1))
        for limit in [container_amount(container, path, resource, units, kinds=("limits",))]
    )
