"""May a card of some kind ever take a share of a request: the rules that freed capacity cannot change.

Cards of one kind differ only in who they are, where they sit and who uses them, so one answer holds for all of them.
"""

from __future__ import annotations

from ullage.core.kernel import reasons
from ullage.core.verdict.reasons import names_isolation
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.part import Isolation, IsolationPolicy, Part
from ullage.model.profile import Profiles
from ullage.model.request import ResourceRequirement


def exclusion_of(gpu: Gpu, asked: ResourceRequirement, profiles: Profiles) -> int:  # noqa: PLR0911 - one per rule
    """Return the first reason why no card of this kind takes a share of the request, `FITS` if there is none."""
    cards = asked.cards
    if cards.pool is not None and gpu.pool != cards.pool:
        return reasons.WRONG_POOL
    if reason := _state_of(gpu) or _isolation_reason(gpu, asked):
        return reason
    if not cards.takes_model(gpu.model):
        return reasons.WRONG_MODEL
    if cards.vendors and gpu.vendor not in cards.vendors:
        return reasons.WRONG_VENDOR
    if needs_capacity(gpu, asked):  # of a card that something else excludes it would be no cure to know it
        return reasons.CAPACITY_UNKNOWN
    if cards.isolation is Isolation.PARTITIONED and profiles.choose(gpu, asked.part or Part(), cards.template) is None:
        return reasons.NO_TEMPLATE
    return reasons.FITS


def keeps_apart(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Return whether a card keeps its users apart as the request wants it, as long as its users allow that."""
    if _only_in_slices(gpu, asked):
        return False
    return not names_isolation(asked) or (
        _policy_allows(gpu, asked) and (_supports(gpu, asked) or not _is_of_kind(gpu, asked))
    )


def needs_capacity(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Return whether the request needs a capacity that is unknown of the card: amounts in absolute units, slices."""
    part = asked.part or Part()
    partitioned = asked.cards.isolation is Isolation.PARTITIONED
    compute = part.compute_gflops > 0 and gpu.compute_gflops is None
    return compute or ((part.vram_bytes > 0 or partitioned) and gpu.vram_bytes is None)


def _state_of(gpu: Gpu) -> int:
    if gpu.used_by:
        return reasons.USED_BY_OTHER
    if not gpu.healthy:
        return reasons.GPU_MISSING
    if gpu.cordoned:
        return reasons.GPU_CORDONED
    if gpu.phase is not GpuPhase.RUNNING:
        return reasons.GPU_NOT_RUNNING
    return reasons.NO_CAPACITY if gpu.empty else reasons.FITS


def _is_of_kind(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Return whether a card is of the requested vendor and model."""
    vendors = asked.cards.vendors
    return (not vendors or gpu.vendor in vendors) and asked.cards.takes_model(gpu.model)


def _isolation_reason(gpu: Gpu, asked: ResourceRequirement) -> int:
    """Return why a card does not keep its users apart as the request wants it."""
    if _only_in_slices(gpu, asked):
        return reasons.ISOLATION_POLICY
    if names_isolation(asked):
        if not _policy_allows(gpu, asked):
            return reasons.ISOLATION_POLICY
        if not _supports(gpu, asked) and _is_of_kind(gpu, asked):  # else its kind is the reason
            return reasons.ISOLATION_UNSUPPORTED
    return reasons.FITS


def _only_in_slices(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Return whether a card is in partitions only, and the request is for none: it is not even a whole card then."""
    return gpu.partitions is not None and asked.cards.isolation is not Isolation.PARTITIONED


def _policy_allows(gpu: Gpu, asked: ResourceRequirement) -> bool:
    mode, wanted = asked.cards.isolation, asked.cards.policy
    if wanted is not None and wanted is not gpu.isolation_policy:
        return False
    if gpu.isolation_policy is IsolationPolicy.STATIC:
        return mode is Isolation.SHARED or gpu.isolation in (None, mode)
    return mode is not Isolation.PARTITIONED


def _supports(gpu: Gpu, asked: ResourceRequirement) -> bool:
    mode = asked.cards.isolation
    return gpu.isolations is None or mode in gpu.isolations or mode is Isolation.SHARED
