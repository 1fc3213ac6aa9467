"""The gate of a pod that waits for its turn, and what is written on it meanwhile and when it opens."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.wire.document import Document, mapping, mappings, text
from ullage.wire.json_patch import Operation, Patch
from ullage.wire.pod.keys import DOMAIN

QUEUE = "queue"
"""Under the domain: the name of the gate, and the label by which a pod, or a namespace, names its queue."""

PLACE, WAITS = "queue-place", "queue-waits"
"""Annotations: the node on which a place was promised when the gate opened; and why a pod waits, for people."""

ROOM = "room-on"
"""Annotation: the node on which others gave way to the pod, where room is kept for it until it is placed."""

NOTES = (PLACE, WAITS, ROOM)
"""What nobody says of a pod that is just made: it had its turn, or waits."""


def gate_of(domain: str = DOMAIN) -> str:
    """The name of the gate."""
    return f"{domain}/{QUEUE}"


def open_gate(pod: Document, node: str = "", domain: str = DOMAIN) -> list[Operation]:
    """What makes of a pod one whose gate is open, with a place on a node; nothing if it is one already.

    It holds for exactly this version of the pod. Without a `node` nothing is said of a place.
    """
    patch = Patch(pod)
    spec = mapping(pod.get("spec"), "spec")
    for position, (_, gate) in enumerate(mappings(spec.get("schedulingGates"), "spec.schedulingGates")):
        if gate.get("name") == gate_of(domain):
            patch.remove("spec", "schedulingGates", position)
            break
    if node:
        patch.put("metadata", "annotations", f"{domain}/{PLACE}", value=node)
    patch.remove("metadata", "annotations", f"{domain}/{WAITS}")
    return _exactly(pod, patch)


def say_why(pod: Document, sentence: str, domain: str = DOMAIN) -> list[Operation]:
    """What writes on a pod why it waits; nothing if it says so already."""
    patch = Patch(pod)
    patch.put("metadata", "annotations", f"{domain}/{WAITS}", value=sentence)
    return _exactly(pod, patch)


def place_of(annotations: Mapping[str, str], domain: str = DOMAIN) -> str:
    """The node on which a place was promised; "" if none was."""
    return annotations.get(f"{domain}/{PLACE}", "")


def reason_of(annotations: Mapping[str, str], domain: str = DOMAIN) -> str:
    """Why a pod waits, as it says itself; "" if it says nothing."""
    return annotations.get(f"{domain}/{WAITS}", "")


def _exactly(pod: Document, patch: Patch) -> list[Operation]:
    """The patch, which holds for this pod alone, as it is now."""
    if not patch.operations:
        return []
    metadata = mapping(pod.get("metadata"), "metadata")
    tests = (Operation("test", f"/metadata/{name}", text(metadata.get(name))) for name in ("uid", "resourceVersion"))
    return [*tests, *patch.operations]
