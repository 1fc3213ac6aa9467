"""`POST /api/simulate-schedule`: where a pod would go, and every step of the decision.

The names of fields are those of the scheduler whose clients use this endpoint. We add fields: per stage what it
removed, per node its cpu, memory and workers, and the verdict of the quotas. Cards are named by uuid.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ullage.model.error import UllageError
from ullage.model.rejection import Rejection
from ullage.wire.allocation_report import CardEntry
from ullage.wire.body import body_of

FILTER_NAMES = {
    "phase": "PhaseFilter",
    "index": "GPUIndexFilter",
    "isolation-mode": "GPUIsolationModeFilter",
    "model": "GPUModelFilter",
    "vendor": "GPUVendorFilter",
    "node-affinity": "NodeAffinityFilter",
    "template": "PartitionTemplateFilter",
    "whole-card": "SharedWholeGPUFilter",
    "room": "GPUResourceFilter",
    "same-node": "SameNodeFilter",
}
"""The names of filters that clients know; other filters have our name."""

UNPLACEABLE = "FitError"
"""The type of the error when no node fits."""


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The chosen node ("" for none), the number of nodes, and how many of them fit."""

    suggested_host: str = ""
    evaluated_nodes: int = 0
    feasible_nodes: int = 0


class Removal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One card that a stage removed (`gpu` null: all of the node), in the dimension's own unit."""

    code: str
    cure: str
    message: str
    node: str | None = None
    gpu: str | None = None
    needed: int = 0
    had: int = 0


class FilterStage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The result of one filter; `Filter` is our name of it. One that was not reached had no cards to check."""

    filter_name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    diff: int
    filter: str
    kind: str
    reached: bool = True
    removed: tuple[Removal, ...] = ()


class FilterDetail(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """All stages in order."""

    filter_stage_details: tuple[FilterStage, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The reasons per node; `unschedulablePlugins` are the filters that removed cards."""

    pre_filter_msg: str = ""
    post_filter_msg: str = ""
    unschedulable_plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    node_to_status: dict[str, str] = {}


class SimulationError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why the pod would not be placed; `code` is for programs, `field` names what is wrong with the pod."""

    type: str
    message: str
    code: str
    field: str | None = None
    num_all_nodes: int = 0
    diagnosis: Diagnosis = Diagnosis()


class GpuSchedulerState(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that fit on nodes that fit, scores of them and of the other cards there, and the choice."""

    node_gpus: dict[str, tuple[CardEntry, ...]] = msgspec.field(name="NodeGPUs", default_factory=dict)
    valid_scores: dict[str, dict[str, int]] = msgspec.field(name="ValidNodeGPUScore", default_factory=dict)
    other_scores: dict[str, dict[str, int]] = msgspec.field(name="ValidNodeNotMatchingGPUScore", default_factory=dict)
    final_gpus: tuple[str, ...] = msgspec.field(name="FinalGPUs", default=())
    preempt_pods: dict[str, tuple[str, ...]] = msgspec.field(name="PreemptPods", default_factory=dict)
    is_preemption: bool = msgspec.field(name="IsPreemption", default=False)


class SimulatedRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a node has enough of something."""

    asked: int
    free: int
    total: int
    enough: bool

    @classmethod
    def of(cls, asked: int, free: int, total: int) -> SimulatedRoom:
        """Return the room for `asked` with `free` left; a deficit is 0."""
        free = max(0, free)
        return cls(asked=asked, free=free, total=total, enough=asked <= free)


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict on a node apart from its cards; `maxWorkers` null is any number."""

    schedulable: bool
    cpu_milli: SimulatedRoom
    memory_bytes: SimulatedRoom
    workers: int
    max_workers: int | None
    below_cap: bool
    score: int | None = None


class QuotaRefusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cap that would be exceeded, in GFLOPS, bytes, cards or workers."""

    code: str
    namespace: str
    requested: int
    limit: int
    used: int
    message: str


class QuotaVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict of the quotas of a namespace and of its parents (`levels`); the first refusal decides."""

    namespace: str
    levels: tuple[str, ...]
    allowed: bool
    refusals: tuple[QuotaRefusal, ...] = ()


class SimulateSchedule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole response."""

    schedule_result: ScheduleResult
    filter_detail: FilterDetail = FilterDetail()
    error: SimulationError | None = None
    gpu_scheduler_state: GpuSchedulerState = GpuSchedulerState()
    nodes: dict[str, NodeVerdict] = {}
    quota: QuotaVerdict | None = None
    warnings: tuple[str, ...] = ()


def filter_name(name: str) -> str:
    """Return the name of a filter that clients know."""
    return FILTER_NAMES.get(name, name)


def filter_stage(
    name: str, kind: str, before: Sequence[str], after: Sequence[str], removed: Sequence[Removal], *, reached: bool
) -> FilterStage:
    """Return a stage from the cards before and after it; both are empty if it was not reached."""
    left = tuple(before) if reached else ()
    return FilterStage(
        filter_name=filter_name(name),
        before=left,
        after=tuple(after),
        diff=len(left) - len(after),
        filter=name,
        kind=kind,
        reached=reached,
        removed=tuple(removed),
    )


def removal(rejection: Rejection, message: str) -> Removal:
    """Return a rejection of a card with its message."""
    return body_of(Removal, rejection, message=message)


def quota_refusal(rejection: Rejection, message: str) -> QuotaRefusal:
    """Return a rejection by a quota with its message."""
    return body_of(QuotaRefusal, rejection, rejection.quota, message=message)


def pod_error(error: UllageError, nodes: int) -> SimulationError:
    """Return the error about a pod for which no node was checked."""
    return body_of(SimulationError, error, type=type(error).__name__, num_all_nodes=nodes)
