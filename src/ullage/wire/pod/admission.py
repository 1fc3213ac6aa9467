"""Checks at admission: pods that can be read but cannot be served, and pods of other schedulers."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.model.error import InvalidAnnotation, invalid, invalid_annotation
from ullage.model.part import WHOLE_CARD, Isolation, Part
from ullage.model.quantity import MIN_SIZE_BYTES, format_bytes
from ullage.wire.document import Document, section
from ullage.wire.pod.cards import AMOUNTS
from ullage.wire.pod.request import PodRequest
from ullage.wire.vendors.shipped import LIMITER_VENDORS


def check_admission(request: PodRequest, *, replicas: int | None = None, pools: bool = True) -> None:
    """Refuse a pod that cannot be served; running pods are not checked. `pools`: it has to be in a pool.

    Raises:
        InvalidAnnotation: no pool; no amount; soft isolation on a vendor without a limiter; a limit below
            its request; a gang larger than its workload.

    """
    part, cards, claim = request.requirement.part, request.requirement.cards, request.claim
    if pools and cards.pool is None:
        raise _refused(request, "gpupool", None, "name a pool, or mark one as the default")
    if part == Part() and cards.isolation is not Isolation.SHARED and cards.template is None:
        raise _asks_nothing(request, cards.isolation)
    if part is not None and 0 < part.vram_bytes < MIN_SIZE_BYTES:
        fix = f"it counts bytes, and a program needs at least {format_bytes(MIN_SIZE_BYTES)}; write 20Gi or so"
        raise _refused(request, "vram-request", part.vram_bytes, fix)
    unlimited = [vendor for vendor in cards.vendors if vendor not in LIMITER_VENDORS]
    if cards.isolation is Isolation.SOFT and unlimited and part != WHOLE_CARD:
        fix = f"{', '.join(unlimited)} has no limiter ({request.key('vendor')}); choose shared, hard or partitioned"
        raise _refused(request, "isolation", cards.isolation.value, fix)
    if part is not None and claim.limit is not None:
        _check_limit(part, claim.limit, request)
    if claim.gang is not None and replicas is not None and claim.gang.required > replicas:
        fix = f"the workload has {replicas} replicas; request at most as many"
        raise _refused(request, "gang-min-members", claim.gang.required, fix)


def _asks_nothing(request: PodRequest, isolation: Isolation) -> InvalidAnnotation:
    amounts = ", ".join(map(request.key, AMOUNTS))
    if isolation is Isolation.PARTITIONED:
        fix = f"a partition is chosen by the requested amounts: give one of {amounts}, or name one by partition-id"
        return _refused(request, "isolation", isolation.value, fix)
    fix = f"no compute and no vram is requested: give one of {amounts} above 0, or leave all out for whole cards"
    for key, value in request.nothing:
        return invalid_annotation(key, value, fix)
    return _refused(request, "gpu-count", request.requirement.gpu_count, fix)


def check_scheduler(pod: Document, names: Iterable[str]) -> None:
    """Refuse a pod that names a scheduler other than these; one that names none is accepted."""
    name = section(pod, "spec").get("schedulerName")
    if name and name not in (known := tuple(names)):
        fix = f"another scheduler places this pod; write {' or '.join(known)}, or leave it out"
        raise invalid("spec.schedulerName", name, fix)


def _check_limit(part: Part, limit: Part, request: PodRequest) -> None:
    for name, unit, asked, most in (
        ("tflops", "GFLOPS", part.compute_gflops, limit.compute_gflops),
        ("compute-percent", "millionths", part.compute_ppm, limit.compute_ppm),
        ("vram", "bytes", part.vram_bytes, limit.vram_bytes),
    ):
        if most and asked > most:
            fix = f"{request.key(f'{name}-request')} is {asked} {unit}; request at most the limit"
            raise _refused(request, f"{name}-limit", f"{most} {unit}", fix)


def _refused(request: PodRequest, name: str, value: object, fix: str) -> InvalidAnnotation:
    return invalid_annotation(request.key(name), value, fix)
