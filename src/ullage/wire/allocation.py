"""Schemas of requests for cards under `/v1/allocations`, `/v1/plan` and `/v1/quotas`."""

from __future__ import annotations

import msgspec

from ullage.model.quota import ALERT_THRESHOLD_PERCENT, MAX_WORKERS
from ullage.wire.consolidation import RoomPlan
from ullage.wire.explanation import RejectionBody
from ullage.wire.node import PlacementBody
from ullage.wire.preemption import AttemptBody, PreemptionBody
from ullage.wire.requirement import ResourceMap
from ullage.wire.schema import ErrorBody, Schema, View


class PartMap(Schema, frozen=True, kw_only=True):
    """An amount of each card: compute in TFLOPS or percent of the card, vram as bytes or a size."""

    tflops: int | float | str | None = None
    percent: int | float | str | None = None
    vram: int | str | None = None


class CreateAllocation(Schema, frozen=True, kw_only=True):
    """A request for cards. `uid` identifies it permanently: a repeat returns what it already holds.

    `gpus` names the cards it must get, else they are chosen. With `commit` false they are only reserved until they are
    committed or forgotten. `limit` is the most it may use of each card; without a `priority` it comes from `qos`.
    `protected_s` shields it from preemption for that many seconds. With `preempt` requests of lower priority are
    evicted if it does not fit: see `NominationBody`. An `owner` other than the caller is for operators.
    """

    uid: str
    resreq: str | ResourceMap
    namespace: str = "default"
    workload: str = ""
    pod: str = ""
    pod_uid: str = ""
    limit: PartMap | None = None
    qos: str = "medium"
    priority: int | None = None
    protected_s: float = 0.0
    strategy: str | None = None
    gpus: list[str] | None = None
    commit: bool = True
    preempt: bool = False
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    owner: str = ""


UNNAMED = ".plan"
"""The uid of a plan that states none; no name may start with a dot."""


class PlanRequest(Schema, frozen=True, kw_only=True):
    """A request as in `CreateAllocation` that is only planned: whether it fits, and the victims with `preempt`.

    Nothing is changed. A `uid` that already holds cards gets those as the answer; the default uid never holds any.
    """

    resreq: str | ResourceMap
    uid: str = UNNAMED
    namespace: str = "default"
    limit: PartMap | None = None
    qos: str = "medium"
    priority: int | None = None
    strategy: str | None = None
    preempt: bool = False
    move: bool = False


class AdjustAllocation(Schema, frozen=True, kw_only=True):
    """New amounts per card; without a limit it becomes the larger of the old limit and the new request."""

    request: PartMap
    limit: PartMap | None = None
    dry_run: bool = False


class ReleaseAllocation(Schema, frozen=True, kw_only=True):
    """The owner was asked to stop. Its cards become free when `DELETE` confirms that it has stopped.

    They also become free after `within_s` seconds, by which the caller guarantees that it has stopped. A repeat does
    not extend the time.
    """

    within_s: float | None = None


class QuotaTotal(Schema, frozen=True, kw_only=True):
    """Caps on the sum of all requests of a namespace: amounts times cards, limits times cards, and their number."""

    requests: PartMap = PartMap()
    limits: PartMap = PartMap()
    max_workers: int | None = MAX_WORKERS


class QuotaSingle(Schema, frozen=True, kw_only=True):
    """Caps on the request and the limit of one request per card, and on its cards; and defaults for what it omits."""

    max_requests: PartMap = PartMap()
    max_limits: PartMap = PartMap()
    max_gpu_count: int | None = None
    default_requests: PartMap | None = None
    default_limits: PartMap | None = None


class PutQuotaBody(Schema, frozen=True, kw_only=True):
    """The whole quota of a namespace; an omitted cap is unlimited, 0 allows nothing. Amounts as in requests."""

    total: QuotaTotal = QuotaTotal()
    single: QuotaSingle = QuotaSingle()
    alert_threshold_percent: int = ALERT_THRESHOLD_PERCENT


# --- responses ---


class AllocatedGpu(View, frozen=True, kw_only=True):
    """The amounts that an allocation holds of one card; None where the capacity of the card is not known."""

    uuid: str
    compute_gflops: int | None
    vram_bytes: int | None
    isolation: str
    partition: str | None = None
    slot_start: int | None = None
    slot_end: int | None = None
    isolation_group: int | None = None


class AllocationBody(View, frozen=True, kw_only=True):
    """An allocation. `state` is assumed, bound or releasing; when releasing, it is free by `release_by` at the latest.

    `limit` is the most it may use of each card; without one it is its request. Without a `placement` the zones of the
    node are not known, or nothing of the allocation lies in them. `unconfirmed`: the node reports its allocations, and
    has not reported this one in time. `warnings` are in the response to its request: the uid holds something else than
    a repeat asks for.
    """

    uid: str
    state: str
    node: str
    gpus: list[AllocatedGpu]
    resreq: str
    limit: PartMap | None
    namespace: str
    workload: str
    pod: str
    pod_uid: str
    owner: str = ""
    qos: str
    priority: int
    assumed_at: float | None
    bound_at: float | None
    release_by: float | None
    placement: PlacementBody | None = None
    unconfirmed: bool = False
    warnings: list[str] = []


class FreedBody(View, frozen=True, kw_only=True):
    """The result of a deallocation: `gpus` are free. `not_held` are cards that were named, but that it did not hold.

    `not_named` are cards that it held without being named; they are free as well.
    """

    uid: str
    gpus: list[str]
    already_gone: bool
    unknown: bool
    not_held: list[str]
    not_named: list[str]


class PairBody(View, frozen=True, kw_only=True):
    """Compute in GFLOPS and vram in bytes, per card."""

    compute_gflops: int
    vram_bytes: int


class AmountsBody(View, frozen=True, kw_only=True):
    """Compute in GFLOPS and vram in bytes, per card; in percent of the card where its capacity is not known."""

    compute_gflops: int | None = None
    compute_percent: float | None = None
    vram_bytes: int | None = None
    vram_percent: float | None = None


class AdjustmentBody(View, frozen=True, kw_only=True):
    """The effect of a change on each card: what remains free on the tightest card, and the differences."""

    remain: AmountsBody
    delta_request: AmountsBody
    delta_limit: AmountsBody
    allocation: AllocationBody


class StageBody(View, frozen=True, kw_only=True):
    """The result of one step of the decision; `kind` says what could resolve a refusal (exclusion, capacity, node)."""

    name: str
    kind: str
    reached: bool
    before: int
    after: int
    removed: list[RejectionBody]


class RefusalBody(ErrorBody, frozen=True, kw_only=True):
    """Why a request was refused: the first rejection decides. `curable`: freed capacity could help.

    For an adjustment that asks too much, `remain` is what is free on the tightest card and `max_request` the largest
    request that would pass. `attempts` are the results of preemption on each node, where it was requested. `warnings`
    say that no node could take the request, even an empty one, and what to ask for instead.
    """

    curable: bool
    rejections: list[RejectionBody]
    stages: list[StageBody]
    remain: AmountsBody | None = None
    max_request: AmountsBody | None = None
    attempts: list[AttemptBody] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


class ChoiceBody(View, frozen=True, kw_only=True):
    """The node and cards on which a request would be placed."""

    node: str
    gpus: list[AllocatedGpu]
    score: float
    placement: PlacementBody | None = None


class PlanBody(View, frozen=True, kw_only=True):
    """The whole decision: `choice` or `refusal`, every stage, and the scores of nodes and cards by `strategy`.

    `learned_from` is the number of tasks from which the workload of `leftover` was learned. It is None for other
    strategies and until there is a workload. `terms` are the parts of its cost of the chosen node, in thousandths of a
    card: the growth of the leftover, and the prices of what is taken. After a refusal `preemption` names who would be
    evicted, and `room` who would move, if that was requested. `warnings` say where the answer is a weaker prediction;
    those of a refusal are in the refusal.
    """

    choice: ChoiceBody | None
    refusal: RefusalBody | None
    stages: list[StageBody]
    node_scores: dict[str, float]
    gpu_scores: dict[str, dict[str, float]]
    strategy: str
    learned_from: int | None = None
    terms: dict[str, float] = msgspec.field(default_factory=dict)
    preemption: PreemptionBody | None = None
    room: RoomPlan | None = None
    warnings: list[str] = msgspec.field(default_factory=list)


class CapacityBody(View, frozen=True, kw_only=True):
    """The sums of a node's cards: `available` without bound charges, `effective` without assumed charges either.

    `virtual` is the most that limits may add up to, `deficit` how much more is held than the cards now have.
    """

    node: str
    total: PairBody
    available: PairBody
    effective: PairBody
    virtual: PairBody
    virtual_available: PairBody
    deficit: PairBody
    cards: int
    managed: int
    models: list[str]
    workers: int
    workers_per_card: dict[str, int]


class QuotaUse(View, frozen=True, kw_only=True):
    """The usage of a namespace, and of the namespaces below it."""

    requests: PartMap
    limits: PartMap
    workers: int


class QuotaBody(View, frozen=True, kw_only=True):
    """A quota as it was put, and its usage. Amounts are exact: TFLOPS as text, vram in bytes.

    `used` is all that is held, `assumed` the part of it that is only reserved. `available_percent` is what is left of
    each total, by name. The quota is `ready` while enough is left of everything, else `reason` and `message` name the
    shortage. `since` is when that last changed, `last_update` when any field last changed.
    """

    namespace: str
    total: QuotaTotal
    single: QuotaSingle
    alert_threshold_percent: int
    used: QuotaUse
    assumed: QuotaUse
    available_percent: dict[str, str]
    ready: bool
    reason: str
    message: str
    since: float
    last_update: float
