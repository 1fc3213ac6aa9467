"""The names that HAMi's metrics had before, for dashboards made for them: those of `--legacy-metrics` of its scheduler.

The values are those of the present names. `nodeGPUMigInstance` is left out: its label has an id that only the device
plugin knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

_CARD = {
    "node": "nodeid",
    "device_uuid": "deviceuuid",
    "device_index": "deviceidx",
    "device_cores": "devicecores",
    "device_memory_limit": "devicememorylimit",
    "device_type": "devicetype",
}
_PLAIN_CARD = {key: name for key, name in _CARD.items() if key != "device_type"}
_POD = {"namespace": "podnamespace", "node": "nodename", "pod": "podname", "device_uuid": "deviceuuid"}
_QUOTA = {"namespace": "quotanamespace", "quota_name": "quotaName", "limit": "limit"}


@dataclass(frozen=True, slots=True)
class _Legacy:
    """The former name of a family, and the former names of its labels. Other labels are left out."""

    name: str
    labels: Mapping[str, str]


_FORMER = {
    "hami_gpu_memory_limit_bytes": _Legacy("GPUDeviceMemoryLimit", _CARD),
    "hami_gpu_core_limit_ratio": _Legacy("GPUDeviceCoreLimit", _CARD),
    "hami_gpu_memory_allocated_bytes": _Legacy("GPUDeviceMemoryAllocated", _CARD),
    "hami_gpu_shared_count": _Legacy("GPUDeviceSharedNum", _CARD),
    "hami_gpu_core_allocated_ratio": _Legacy("GPUDeviceCoreAllocated", _CARD),
    "hami_node_gpu_overview": _Legacy("nodeGPUOverview", _CARD),
    "hami_node_gpu_memory_allocated_ratio": _Legacy("nodeGPUMemoryPercentage", _PLAIN_CARD),
    "hami_vgpu_memory_allocated_bytes": _Legacy("vGPUMemoryAllocated", _POD),
    "hami_vgpu_core_allocated_ratio": _Legacy("vGPUCoreAllocated", _POD),
    "hami_resource_quota_used": _Legacy("QuotaUsed", _QUOTA),
}


def with_former_names(families: Iterable[Metric]) -> Iterator[Metric]:
    """Yield the families, each followed by the same under its former name if it had one."""
    for family in families:
        yield family
        former = _FORMER.get(family.name)
        if former is None:
            continue
        found = GaugeMetricFamily(former.name, f"Former name of {family.name}")
        for sample in family.samples:
            labels = {name: sample.labels[key] for key, name in former.labels.items() if key in sample.labels}
            found.add_sample(former.name, labels, sample.value)
        yield found
