"""Quotas from the objects of another GPU allocator in Kubernetes (GPUResourceQuota).

They differ from ours in one point: a zero among the caps on one request means that none was set. Quantities are those
of Kubernetes, where `8G` is 8 * 10^9 and `8Gi` is 8 * 2^30; tflops have units of 1 GFLOPS and vram of 1 byte, and
finer values round up.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.model.error import invalid
from ullage.model.part import GFLOPS_PER_TFLOPS, Part
from ullage.model.quantity import MAX_INT32, MAX_INT64, PPM, parse_count
from ullage.model.quota import ALERT_THRESHOLD_PERCENT, MAX_WORKERS, WHOLE_PERCENT, Caps, Quota
from ullage.wire.kubernetes_quantity import parse_quantity

KIND = "GPUResourceQuota"


def quota_namespace(document: Mapping[str, object]) -> str:
    """Return the namespace of an object, even if its quota is invalid.

    Raises:
        InvalidRequest: it names none.

    """
    namespace = _section(document, "metadata", "metadata").get("namespace")
    if not isinstance(namespace, str) or not namespace:
        raise invalid("metadata.namespace", namespace, "a namespace is needed")
    return namespace


def parse_gpu_resource_quota(document: Mapping[str, object]) -> Quota:
    """Return the quota of a GPUResourceQuota; its status is not read, since usage follows from the ledger.

    Raises:
        InvalidRequest: a value is malformed, or the quota contradicts itself.

    """
    if document.get("kind", KIND) != KIND:
        raise invalid("kind", document["kind"], f"{KIND} is needed")
    spec = _section(document, "spec", "spec")
    total, single = _section(spec, "total", "spec.total"), _section(spec, "single", "spec.single")
    workers = _count(total, "maxWorkers", "spec.total")
    threshold = _count(total, "alertThresholdPercent", "spec.total")
    return Quota(
        total_requests=_caps(total, "requests", "spec.total"),
        total_limits=_caps(total, "limits", "spec.total"),
        max_workers=MAX_WORKERS if workers is None else workers,
        max_requests=_unset_zeros(_caps(single, "maxRequests", "spec.single")),
        max_limits=_unset_zeros(_caps(single, "maxLimits", "spec.single")),
        max_gpu_count=_count(single, "maxGPUCount", "spec.single") or None,
        default_requests=_amounts(single, "defaultRequests", "spec.single"),
        default_limits=_amounts(single, "defaultLimits", "spec.single"),
        alert_threshold_percent=ALERT_THRESHOLD_PERCENT if threshold is None else threshold,
    )


def _section(parent: Mapping[str, object], name: str, path: str) -> Mapping[str, object]:
    section = parent.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise invalid(path, section, "an object is needed")
    return section


def _caps(parent: Mapping[str, object], name: str, path: str) -> Caps:
    path = f"{path}.{name}"
    section = _section(parent, name, path)
    if _percent(section, path):
        raise invalid(f"{path}.compute", section["compute"], "a cap is an amount; write it in tflops")
    compute, vram = _quantity(section, "tflops", path, GFLOPS_PER_TFLOPS), _quantity(section, "vram", path)
    return Caps(
        None if section.get("tflops") is None else compute,
        None if section.get("vram") is None else vram,
    )


def _unset_zeros(caps: Caps) -> Caps:
    return Caps(caps.compute_gflops or None, caps.vram_bytes or None)


def _amounts(parent: Mapping[str, object], name: str, path: str) -> Part | None:
    path = f"{path}.{name}"
    section = _section(parent, name, path)
    gflops, ppm = _quantity(section, "tflops", path, GFLOPS_PER_TFLOPS), _percent(section, path)
    if gflops and ppm:
        raise invalid(f"{path}.compute", section["compute"], "tflops are given too; keep one of the two")
    vram = _quantity(section, "vram", path)
    return Part(gflops, vram, ppm) if gflops or ppm or vram else None


def _count(section: Mapping[str, object], name: str, path: str) -> int | None:
    value, field = section.get(name), f"{path}.{name}"
    return None if value is None else parse_count(str(value), field, MAX_INT32)


def _quantity(section: Mapping[str, object], name: str, path: str, units: int = 1, maximum: int = MAX_INT64) -> int:
    """Return a quantity in `units` of one whole; 0 if it is absent."""
    value = section.get(name)
    return 0 if value is None else parse_quantity(value, f"{path}.{name}", units=units, maximum=maximum)


def _percent(section: Mapping[str, object], path: str) -> int:
    return _quantity(section, "compute", path, PPM // WHOLE_PERCENT, maximum=PPM)
