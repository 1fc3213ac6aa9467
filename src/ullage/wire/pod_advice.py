"""A request for cards in the words of the dialect of a pod, as they are typed in its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM, format_bytes
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, show_milli
from ullage.wire.pod.request import Dialect, PodRequest
from ullage.wire.vendors.container_request import MIB, WHOLE
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.shipped import NATIVE_RESOURCES, NVIDIA

_PERCENT = PPM // WHOLE


def request_text(asked: ResourceRequirement, pod: PodRequest) -> str:
    """Return what a pod would write to ask for this: `ullage.io/gpu-count: "1", ullage.io/vram-request: 40Gi`.

    A fraction of the vram has words in HAMi's resources only. "" if the cards of the vendor have no words for it.
    """
    part = _part_of(asked)
    if pod.dialect not in (Dialect.HAMI, Dialect.PLAIN) and not part.vram_ppm:
        written = _of_domain(asked, pod)
    elif (family := _family_for(pod)) is not None and _has_words(part, family):
        written = _of_containers(asked, family)
    elif part.is_empty and (resource := _native_of(pod)):
        written = iter([(resource, str(asked.gpu_count))])
    else:
        return ""
    return ", ".join(f"{key}: {value}" for key, value in (*written, *_of_both(asked, pod)))


def _family_for(pod: PodRequest) -> Family | None:
    """Return the names of HAMi's resources for the pod; None where its other words do not go with these."""
    if pod.dialect is Dialect.TENSOR_FUSION:
        return None
    if pod.devices is not None:
        return pod.devices.family
    vendors = pod.requirement.cards.vendors
    return NVIDIA if not vendors or NVIDIA.name in vendors else None


def _has_words(part: Part, family: Family) -> bool:
    """Return whether the family has resources for what is asked of each card."""
    own = family.resources
    memory = own.memory if part.vram_bytes else own.percent if part.vram_ppm else own.count
    return bool(memory and (own.cores or not part.compute_ppm) and not part.compute_gflops)


def _native_of(pod: PodRequest) -> str:
    vendors = pod.requirement.cards.vendors
    return next((resource for resource, vendor in NATIVE_RESOURCES.items() if vendor in vendors), "")


def _of_domain(asked: ResourceRequirement, pod: PodRequest) -> Iterator[tuple[str, str]]:
    part, cards = _part_of(asked), asked.cards
    if asked.gpu_count:
        yield pod.key("gpu-count"), f'"{asked.gpu_count}"'
    if vram := part.vram_bytes:
        yield pod.key("vram-request"), format_bytes(vram)
    if part.compute_gflops:
        yield pod.key("tflops-request"), f'"{show_milli(part.compute_gflops)}"'
    if part.compute_ppm:
        yield pod.key("compute-percent-request"), f'"{show_milli(part.compute_ppm * MILLI // _PERCENT)}"'
    for name, value in (("gpu-model", ",".join(cards.models)), ("vendor", ",".join(cards.vendors))):
        if value:
            yield pod.key(name), value
    if cards.indices:
        yield pod.key("gpu-indices"), f'"{",".join(map(str, cards.indices))}"'
    if cards.isolation in (Isolation.HARD, Isolation.PARTITIONED):
        yield pod.key("isolation"), cards.isolation.value
    if cards.template:
        yield pod.key("partition-id"), cards.template


def _of_containers(asked: ResourceRequirement, family: Family) -> Iterator[tuple[str, str]]:
    part, cards, own = _part_of(asked), asked.cards, family.resources
    if asked.gpu_count:
        yield own.count, str(asked.gpu_count)
    if part.vram_bytes:
        yield own.memory, str(part.vram_bytes // MIB // family.memory.unit_mib)
    elif part.vram_ppm:
        yield own.percent, str(part.vram_ppm // _PERCENT)
    if part.compute_ppm:
        yield own.cores, str(part.compute_ppm * family.cores.per_card // PPM)
    for key, names in _lists(asked, family).items():
        if key and names:
            yield key, ",".join(names)
    if cards.isolation is Isolation.PARTITIONED:
        mode = next((mode for mode, isolation in family.modes.items() if isolation is cards.isolation), "")
        yield family.annotations.mode, mode


def _lists(asked: ResourceRequirement, family: Family) -> dict[str, tuple[str, ...]]:
    cards, own = asked.cards, family.annotations
    return {
        next(iter(own.use_uuid), ""): cards.uuids,
        next(iter(own.nouse_uuid), ""): cards.not_uuids,
        own.use_type: cards.model_words,
        own.nouse_type: cards.not_model_words,
    }


def _of_both(asked: ResourceRequirement, pod: PodRequest) -> Iterator[tuple[str, str]]:
    """Yield what is written in the same words in all dialects."""
    if asked.cpu_milli:
        yield "cpu", show_milli(asked.cpu_milli)
    if asked.memory_bytes:
        yield "memory", format_bytes(asked.memory_bytes)
    if asked.cards.pool:
        yield pod.key("gpupool"), asked.cards.pool
    if asked.alignment.policy is not None:
        yield pod.key("numa-policy"), asked.alignment.policy.value
    if asked.alignment.links is not None:
        yield pod.key("gpu-links"), asked.alignment.links.value
    if asked.alignment.pairs:
        yield pod.key("numa-pairs"), ",".join(map(str, asked.alignment.pairs))


def _part_of(asked: ResourceRequirement) -> Part:
    """Return the part that has to be written; nothing is written of whole cards."""
    part = asked.part or Part()
    return Part() if asked.whole or part.fraction_ppm == PPM else part
