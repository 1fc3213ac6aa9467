"""How many cards a container asks of its kubelet, where bindings of applications say how many a pod gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.model.error import invalid
from ullage.wire.document import Document, mapping
from ullage.wire.gpubinding import CONSUME_LABEL
from ullage.wire.json_patch import Patch
from ullage.wire.pod import Dialect, PodRequest

BoundCounts = Callable[[Document, PodRequest], Sequence[int]]
"""How many cards a new pod gets by bindings, each number once; empty where bindings do not decide."""


def ask_for_bound(patch: Patch, pod: Document, asked: PodRequest, counts: Sequence[int]) -> bool:
    """Have the container of a pod ask for as many cards as its bindings give, and return whether that changes it.

    A kubelet hands out as many cards as containers ask for, whatever a scheduler holds for their pod.

    Raises:
        InvalidRequest: the pod gets more cards on each node than its containers ask for, and it is not certain which
            container is to have them, or how many they are.

    """
    count = asked.requirement.gpu_count
    if not counts or count in counts or asked.devices is None or not asked.devices.counted:
        return False
    asks = asked.devices.containers
    asking = [at for at, ask in enumerate(asks) if ask.count]
    (at, *more), word = asking, asked.devices.words.count
    before = len(asks) - len(mapping(pod.get("spec"), "spec")["containers"])
    if more or len(counts) > 1 or at < before or asked.dialect not in (Dialect.HAMI, Dialect.PLAIN):
        given = " or ".join(map(str, counts))
        fix = f"its application has {given} cards bound on a node and takes all: ask for as many, or label the pod"
        raise invalid(f"spec.containers.{word}", count, f"{fix} {CONSUME_LABEL}=single")
    path = "spec", "containers", at - before, "resources"
    patch.put(*path, "limits", word, value=str(counts[0]))
    resources = mapping(mapping(pod["spec"]["containers"][at - before], "container").get("resources"), "resources")
    if word in mapping(resources.get("requests"), "requests"):
        patch.put(*path, "requests", word, value=str(counts[0]))
    return True
