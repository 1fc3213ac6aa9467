"""The quotas of namespaces that pods of a cluster share."""

from __future__ import annotations

from dataclasses import replace

from ullage.core.allocator import FleetAllocator
from ullage.core.verdict.quota import asked_of
from ullage.model.claim import Claim
from ullage.model.part import Part
from ullage.model.quantity import PPM
from ullage.model.quota import Quota
from ullage.model.rejection import Rejection
from ullage.model.request import ResourceRequirement


class PodQuotas:
    """They are part of the rules of an allocator."""

    def __init__(self, allocator: FleetAllocator) -> None:
        self._allocator = allocator

    def set(self, namespace: str, quota: Quota | None, fault: str = "") -> None:
        """Set the quota of a namespace, or remove it with None. Nothing is evicted.

        `fault` says what of the quota cannot be read; refusals by the quota show it.
        """
        rules = self._allocator.rules
        left = rules.quotas.without(namespace)
        if quota is not None:
            left = replace(left, quotas={**left.quotas, namespace: quota})
        if fault:
            left = replace(left, faults={**left.faults, namespace: fault})
        if left != rules.quotas:
            self._allocator.rules = replace(rules, quotas=left)

    def exceeded(self, requirement: ResourceRequirement, claim: Claim) -> Rejection | None:
        """Return why quotas refuse one more such request; None if they allow it.

        A part that depends on the card counts nothing here, but counts when the request is placed.
        """
        part, limit = requirement.part or Part(), claim.limit
        asked = asked_of(
            Part(part.compute_gflops, part.vram_bytes),
            None if limit is None else Part(limit.compute_gflops, limit.vram_bytes),
            requirement.gpu_count,
            requirement.gpu_count * (PPM if requirement.whole else part.compute_ppm),
        )
        refused = self._allocator.rules.quotas.check(self._allocator.fleet.usage, claim.quota_name, asked)
        return refused[0] if refused else None
