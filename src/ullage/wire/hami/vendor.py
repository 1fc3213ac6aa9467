"""The names with which HAMi's pods request cards of a vendor, and the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

ANNOTATIONS = "hami.io"
"""The domain of annotations that are the same for all vendors."""

CARD_ANNOTATIONS = ("use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid", "numa-bind", "vgpu-mode")
"""Annotations of a pod under the domain of its vendor."""

POLICY_ANNOTATIONS = ("node-scheduler-policy", "gpu-scheduler-policy", "device-scoring-weights")
"""Annotations of a pod under `ANNOTATIONS`."""


@dataclass(frozen=True, slots=True)
class HamiVendor:
    """One vendor's names of resources, the domain of its annotations, and the defaults of its configuration.

    `memory` counts MiB (times `memory_factor`), `memory_percentage` and `cores` percent, each per card. Without
    default memory the memory of a card is taken whole; without default cores no compute is held.
    """

    name: str = "NVIDIA"
    count: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    memory_percentage: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    priority: str = "nvidia.com/priority"
    domain: str = "nvidia.com"
    default_count: int = 1
    default_memory_mib: int = 0
    default_cores: int = 0
    memory_factor: int = 1
    node_policy: str = "binpack"
    card_policy: str = "spread"

    @property
    def amounts(self) -> tuple[str, ...]:
        """Resources that only HAMi knows."""
        return self.memory, self.memory_percentage, self.cores, self.priority

    @property
    def has_defaults(self) -> bool:
        """Whether a card without stated amounts is a part of one."""
        return bool(self.default_memory_mib or self.default_cores)

    def annotations(self) -> tuple[str, ...]:
        """Return the full keys of the annotations of requests."""
        return _annotations(self.domain)


@cache
def _annotations(domain: str) -> tuple[str, ...]:
    by_vendor = (f"{domain}/{name}" for name in CARD_ANNOTATIONS)
    return *by_vendor, *(f"{ANNOTATIONS}/{name}" for name in POLICY_ANNOTATIONS)


NVIDIA = HamiVendor()
