"""The scheduling gate of a pod that waits to be admitted, and the annotations about it."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.wire.document import Document, mappings, section, text
from ullage.wire.json_patch import JsonPatch, PatchOperation
from ullage.wire.pod.keys import DOMAIN

QUEUE = "queue"
"""Under the domain: the name of the gate, and the label with which a pod or a namespace names its queue."""

PLACE, WAITS = "queue-place", "queue-waits"
"""Annotations: the node where a place was promised when the gate opened; and why a pod waits, for people."""

ROOM = "room-on"
"""Annotation: the node where other pods were evicted for the pod; its room is reserved until the pod is placed."""

GATE_ANNOTATIONS = (PLACE, WAITS, ROOM)
"""Annotations of a pod that waits or was admitted; a new pod has none of them."""


def gate_of(domain: str = DOMAIN) -> str:
    return f"{domain}/{QUEUE}"


def open_gate(pod: Document, node: str = "", domain: str = DOMAIN) -> list[PatchOperation]:
    """Return the patch that opens the gate of a pod, with a place on a node; nothing if it is open already.

    The patch applies to exactly this version of the pod. Without a `node` no place is written.
    """
    patch = JsonPatch(pod)
    spec = section(pod, "spec")
    for position, (_, gate) in enumerate(mappings(spec.get("schedulingGates"), "spec.schedulingGates")):
        if gate.get("name") == gate_of(domain):
            patch.remove("spec", "schedulingGates", position)
            break
    if node:
        patch.put("metadata", "annotations", f"{domain}/{PLACE}", value=node)
    patch.remove("metadata", "annotations", f"{domain}/{WAITS}")
    return _exactly(pod, patch)


def set_reason(pod: Document, sentence: str, domain: str = DOMAIN) -> list[PatchOperation]:
    """Return the patch that writes on a pod why it waits; nothing if that is already there."""
    patch = JsonPatch(pod)
    patch.put("metadata", "annotations", f"{domain}/{WAITS}", value=sentence)
    return _exactly(pod, patch)


def place_of(annotations: Mapping[str, str], domain: str = DOMAIN) -> str:
    """Return the node on which a place was promised; "" if none was."""
    return annotations.get(f"{domain}/{PLACE}", "")


def reason_of(annotations: Mapping[str, str], domain: str = DOMAIN) -> str:
    """Return why a pod waits, from its annotation; "" if there is none."""
    return annotations.get(f"{domain}/{WAITS}", "")


def _exactly(pod: Document, patch: JsonPatch) -> list[PatchOperation]:
    """Return the patch with tests that it applies to this version of the pod only."""
    if not patch.operations:
        return []
    metadata = section(pod, "metadata")
    tests = (
        PatchOperation("test", f"/metadata/{name}", text(metadata.get(name))) for name in ("uid", "resourceVersion")
    )
    return [*tests, *patch.operations]
