"""The request of a pod without cards whose CPUs, memory, huge pages or devices are aligned to zones."""

from __future__ import annotations

from ullage.model.alignment import AlignmentStage
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.provider import pages_of
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CPU, MEMORY, ZonePolicy
from ullage.model.zone_placement import ZonePlacement
from ullage.wire.document import Document, section
from ullage.wire.pod.affinity import node_affinity
from ullage.wire.pod.alignment import alignment_of, needs_of, zone_annotations
from ullage.wire.pod.containers import pod_amount
from ullage.wire.pod.keys import DOMAIN, Keys
from ullage.wire.pod.owner import plain_claim


def read_aligned(pod: Document, domain: str = DOMAIN, *, align_all: bool = False) -> Request | None:
    """Return the request of a pod without cards; None if nothing of it is aligned, or it has no uid yet.

    A pod is aligned that asks for a policy, or with `align_all` any pod that a kubelet would align. Resources that no
    kubelet aligns are left out: parts of CPUs, and CPUs and memory of pods that are not Guaranteed.

    Raises:
        InvalidAnnotation: its policy is not one of the four.
        InvalidRequest: an amount cannot be read.

    """
    if not align_all and not zone_annotations(pod, domain):
        return None
    keys, spec = Keys(pod, domain), section(pod, "spec")
    cpu_milli = pod_amount(spec, "cpu", MILLI)
    alignment = alignment_of(keys, pod, cpu_milli=cpu_milli, cards=0, split={})
    asks = alignment.policy not in (None, ZonePolicy.NONE)
    claim = plain_claim(keys, spec)
    if not claim.pod_uid or not alignment.containers or not (asks or align_all):
        return None
    requirement = ResourceRequirement(
        cpu_milli, pod_amount(spec, "memory", 1), nodes=node_affinity(spec), alignment=alignment
    )
    return Request(claim.pod_uid, requirement, claim)


def exclusive_amounts(pod: Document) -> dict[str, int]:
    """Return what a pod that runs holds exclusively, by resource (`gpu` for cards of all vendors); memory in bytes.

    Init containers have ended, except sidecars.

    Raises:
        InvalidRequest: an amount cannot be read.

    """
    found: dict[str, int] = {}
    for needs in needs_of(pod):
        if needs.stage is AlignmentStage.INIT:
            continue
        pages = ((pages_of(size), amount) for size, amount in needs.hugepages)
        for name, amount in ((CPU, needs.cpus), (MEMORY, needs.memory_bytes), *needs.devices, *pages):
            if amount:
                found[name] = found.get(name, 0) + amount
    return found


def aligned_allocation(request: Request, node: str, placement: ZonePlacement) -> Allocation:
    """Return what a pod without cards holds on its node, where it lies as was written on it at bind."""
    return Allocation(
        id=request.uid,
        node=node,
        requirement=request.requirement,
        gpus=(),
        state=AllocationState.BOUND,
        claim=request.claim,
        placement=placement,
    )
