"""The annotations that are written on a pod at bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ullage.model.allocation import Allocation
from ullage.model.error import invalid
from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.pod.placement import placement_annotations
from ullage.wire.pod.record import Record
from ullage.wire.pod.split import split_container_gpus

BINDINGS = "gpu-bindings"
"""The bindings that gave the pod its cards, with commas."""

REMOVED = "removed-annotations"
"""The annotations that the webhook took off a new pod because only a scheduler writes them, with commas."""

OUTPUT = (
    *("gpu-ids", "allocation", "index", "effective-hard-sm-percent", "container-gpus", "numa-placement"),
    BINDINGS,
    REMOVED,
)
"""Annotations under its domain that only a scheduler and the webhook write. A `partition-id` may be requested too."""


def bind_annotations(
    allocation: Allocation,
    domain: str = DOMAIN,
    *,
    capacities: Mapping[str, int] | None = None,
    container_gpu_counts: Mapping[str, int] | None = None,
    index: int | None = None,
    further: Sequence[Allocation] = (),
) -> dict[str, str]:
    """Return the annotations of a pod that is bound: `gpu-ids` and the others that apply; none without cards.

    `further` are its cards of further families.

    `capacities` are GFLOPS by card, needed for a hard limit in GFLOPS; `index` is the device index. The keys
    `allocation` and `numa-placement` keep the charges, slots and times and the place in the machine, so that
    `read_allocations` returns the same allocations.
    """
    if not allocation.gpus:
        return {}
    by_family = allocation, *further
    record = msgspec.json.encode(Record.of(allocation, further)).decode()
    written = {"gpu-ids": ",".join(gpu for each in by_family for gpu in each.gpus), "allocation": record}
    if index is not None:
        written["index"] = str(index)
    pinned = allocation.requirement.cards.template
    charges = (charge for each in by_family for charge in each.charges)
    templates = dict.fromkeys(slot.template for charge in charges for slot in charge.slots)
    if templates or pinned is not None:
        written["partition-id"] = pinned or ",".join(templates)
    percent = _hard_percent(allocation, capacities or {})
    if percent is not None:
        written["effective-hard-sm-percent"] = str(percent)
    if container_gpu_counts:
        split = split_container_gpus(container_gpu_counts, allocation.gpus)
        written["container-gpus"] = msgspec.json.encode(split).decode()
    placed = {} if allocation.placement is None else placement_annotations(allocation.placement, domain)
    return {f"{domain}/{name}": text for name, text in written.items()} | placed


def effective_hard_sm_percent(limit_gflops: int, capacity_gflops: int) -> int:
    """Return the percentage of a card's cores of a hard limit: rounded up, from 1 to 100."""
    if capacity_gflops <= 0:
        raise invalid("capacity_gflops", capacity_gflops, "a card of known capacity is needed")
    return min(max(-(-limit_gflops * 100 // capacity_gflops), 1), 100)


def _hard_percent(allocation: Allocation, capacities: Mapping[str, int]) -> int | None:
    """Return the percentage of a hard limit on the smallest card, where it is largest; None without one on compute."""
    asked, limit = allocation.requirement, allocation.claim.limit if allocation.claim else None
    if asked.cards.isolation is not Isolation.HARD or asked.part is None:
        return None
    most: Part = limit or asked.part
    if most.compute_ppm:
        return effective_hard_sm_percent(most.compute_ppm, PPM)
    if not most.compute_gflops:
        return None
    return max(effective_hard_sm_percent(most.compute_gflops, capacities.get(gpu, 0)) for gpu in allocation.gpus)
