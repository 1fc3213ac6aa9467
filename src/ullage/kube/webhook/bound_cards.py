"""The number of cards that a container requests from its kubelet, if bindings decide how many its pod gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.model.error import invalid
from ullage.wire.document import Document, mapping
from ullage.wire.gpubinding import CONSUME_LABEL
from ullage.wire.json_patch import JsonPatch
from ullage.wire.pod import Dialect, PodRequest

BoundCounts = Callable[[Document, PodRequest], Sequence[int]]
"""Return the numbers of cards that a new pod can get by bindings, each once; empty if bindings do not decide."""


def ask_for_bound(patch: JsonPatch, pod: Document, asked: PodRequest, counts: Sequence[int]) -> bool:
    """Set a container's card request to the number that its bindings give. Return whether that changes it.

    A kubelet hands out as many cards as containers request, whatever a scheduler holds for their pod.

    Raises:
        InvalidRequest: the pod gets more cards on each node than its containers request, and it is uncertain which
        container gets them, or how many they are.

    """
    count = asked.requirement.gpu_count
    if not counts or count in counts or asked.devices is None or not asked.devices.counted:
        return False
    asks = asked.devices.containers
    asking = [at for at, ask in enumerate(asks) if ask.count]
    (at, *more), word = asking, asked.devices.family.resources.count
    before = len(asks) - len(mapping(pod.get("spec"), "spec")["containers"])
    if more or len(counts) > 1 or at < before or asked.dialect not in (Dialect.HAMI, Dialect.PLAIN):
        given = " or ".join(map(str, counts))
        fix = f"its application has {given} cards bound on a node and takes all: ask for as many, or label the pod"
        raise invalid(f"spec.containers.{word}", count, f"{fix} {CONSUME_LABEL}=single")
    path = "spec", "containers", at - before, "resources"
    (bound,) = counts
    patch.put(*path, "limits", word, value=str(bound))
    resources = mapping(mapping(pod["spec"]["containers"][at - before], "container").get("resources"), "resources")
    if word in mapping(resources.get("requests"), "requests"):
        patch.put(*path, "requests", word, value=str(bound))
    return True
