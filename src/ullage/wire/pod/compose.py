"""The whole request of a pod."""

from __future__ import annotations

from dataclasses import replace

from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.wire.document import Document, section
from ullage.wire.pod.affinity import node_affinity
from ullage.wire.pod.alignment import alignment_of
from ullage.wire.pod.cards import read_card_request
from ullage.wire.pod.containers import pod_amount
from ullage.wire.pod.keys import DOMAIN, Keys
from ullage.wire.pod.owner import claim_of
from ullage.wire.pod.request import PLAIN_DEFAULTS, Dialect, PodDefaults, PodRequest
from ullage.wire.pod.slices import read_slice_request
from ullage.wire.pod.split import container_gpu_counts
from ullage.wire.shared import shared_requirement
from ullage.wire.vendors.container_request import FamilyRequest


def compose_request(
    pod: Document,
    domain: str = DOMAIN,
    *,
    defaults: PodDefaults = PLAIN_DEFAULTS,
    replicas: int | None = None,
    now: float = 0.0,
    dialect: Dialect = Dialect.OURS,
    devices: FamilyRequest | None = None,
) -> PodRequest:
    """Return the request of a pod; `dialect` and `devices` are fields of it.

    `replicas` is the size of its workload, for a gang that admission has not stamped yet; `now` (seconds since the
    epoch) is the time of creation of a pod that has none yet.
    """
    keys = Keys(pod, domain)
    spec = section(pod, "spec")
    asked = read_slice_request(keys, spec, defaults) or read_card_request(keys, spec, defaults)
    claim, warnings = claim_of(keys, spec, asked, defaults, replicas=replicas, now=now)
    cpu_milli = pod_amount(spec, "cpu", MILLI)
    split = container_gpu_counts(keys, asked.count)
    requirement = shared_requirement(
        ResourceRequirement(
            cpu_milli=cpu_milli,
            memory_bytes=pod_amount(spec, "memory", 1),
            gpu_count=asked.count,
            part=asked.part,
            cards=asked.cards,
            nodes=node_affinity(spec),
            alignment=alignment_of(keys, pod, cpu_milli=cpu_milli, cards=0 if asked.ways else asked.count, split=split),
        )
    )
    return PodRequest(
        uid=claim.pod_uid,
        requirement=requirement,
        claim=claim,
        domain=domain,
        container_gpu_counts=split,
        warnings=(*asked.warnings, *warnings),
        dialect=dialect,
        devices=devices,
        nothing=asked.nothing,
        together=tuple(
            replace(requirement, gpu_count=way.cards, cards=replace(asked.cards, slices=way.slices))
            for way in asked.ways[1:]
        ),
    )
