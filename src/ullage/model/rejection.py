"""Rejections: the reasons why a request was not placed, as values, never exceptions and never parsed from text."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.model.part import Isolation


class Cure(StrEnum):
    """The kind of change that could help."""

    CAPACITY = "capacity"
    NODE_CHANGE = "node-change"
    QUOTA = "quota"
    OWNER = "owner"
    NEVER = "never"


class Code(StrEnum):
    """Reasons, stable and documented in docs/reference/reasons.md."""

    CPU = "insufficient-cpu"
    MEMORY = "insufficient-memory"
    GPU = "insufficient-gpu"
    SLOTS = "node-executor-limit"
    NOT_READY = "node-not-ready"
    CORDONED = "node-cordoned"
    RESERVED = "held-for-another"
    TOO_LARGE = "unplaceable"
    ABOVE_LIMIT = "above-limit"
    QUEUE_LIMIT = "queue-limit"
    APPLICATION_LIMIT = "application-limit"
    SHARE = "fair-share-reached"
    GANG_INCOMPLETE = "gang-incomplete"
    GANG_ROOM = "gang-does-not-fit"
    GANG_DOMAIN = "gang-domain-too-small"
    BIND_FAILURES = "bind-failures"
    BACKOFF = "gang-backoff"
    DEPENDENCY = "waiting-for-session"
    BEGIN_TIME = "waiting-for-begin-time"
    RECLAIMING = "waiting-for-reclaim"
    STARTING = "executors-starting"
    NO_NODES = "no-nodes"
    MAX_INSTANCES = "max-instances"
    CLOSED = "session-closed"
    NOTHING_PENDING = "nothing-pending"
    RUNNING = "running"
    WRONG_POOL = "wrong-pool"
    GPU_NOT_RUNNING = "gpu-not-running"
    USED_BY_OTHER = "used-by-other"
    GPU_MISSING = "gpu-missing"
    GPU_CORDONED = "gpu-cordoned"
    CAPACITY_UNKNOWN = "gpu-capacity-unknown"
    NO_CAPACITY = "gpu-no-capacity"
    ISOLATION_POLICY = "isolation-policy"
    ISOLATION_LOCKED = "isolation-locked"
    ISOLATION_CONFLICT = "isolation-conflict"
    ISOLATION_UNSUPPORTED = "isolation-unsupported"
    WRONG_INDEX = "wrong-index"
    WRONG_UUID = "wrong-uuid"
    WRONG_MODEL = "wrong-model"
    WRONG_VENDOR = "wrong-vendor"
    NODE_AFFINITY = "node-affinity"
    NODE_TAINTED = "node-tainted"
    NODE_UNKNOWN = "node-unknown"
    REFUSED_THERE = "refused-there"
    POD_ANTI_AFFINITY = "pod-anti-affinity"
    NO_PARTITION_TEMPLATE = "no-partition-template"
    GPU_NOT_IDLE = "gpu-not-idle"
    GPU_USERS = "gpu-user-limit"
    GPU_COMPUTE = "insufficient-compute"
    GPU_VRAM = "insufficient-vram"
    GPU_SHARE = "insufficient-gpu-share"
    PARTITION_COUNT = "partition-count"
    TEMPLATE_MAX = "template-max"
    EXTENDED_RESOURCE = "extended-resource"
    NO_PARTITION_SLOT = "no-partition-slot"
    NO_ISOLATION_GROUP = "no-isolation-group"
    OVERSUBSCRIPTION = "oversubscription-limit"
    NOMINATED = "reserved-for-nominated"
    WORKER_CAP = "worker-cap"
    NOT_ENOUGH_CARDS = "not-enough-gpus-on-node"
    NO_NODE_FITS = "no-node-fits"
    NO_CANDIDATE = "no-candidate"
    SCALING_EXCEEDED = "scaling-exceeded"
    NO_AFFECTED_NODE = "no-affected-node"
    NO_VICTIMS = "no-victims"
    EVICTING = "waiting-for-eviction"
    NO_MOVES_HELP = "no-moves-help"
    TOPOLOGY_UNKNOWN = "topology-unknown"
    NODE_POLICY_WEAKER = "node-policy-weaker"
    ZONES_TOO_MANY = "zones-too-many"
    NOT_ALIGNED = "not-aligned"
    SHORT_ALLOCATION = "short-allocation"
    BROKEN_CORES = "broken-cores"
    NOT_LINKED = "not-linked"
    OFF_SWITCH = "off-switch"
    QUOTA_SINGLE_COMPUTE_REQUEST = "single.max.tflops.request"
    QUOTA_SINGLE_VRAM_REQUEST = "single.max.vram.request"
    QUOTA_SINGLE_COMPUTE_LIMIT = "single.max.tflops.limit"
    QUOTA_SINGLE_VRAM_LIMIT = "single.max.vram.limit"
    QUOTA_SINGLE_GPU_COUNT = "single.max.gpuCount.limit"
    QUOTA_TOTAL_COMPUTE_REQUEST = "total.max.tflops.request"
    QUOTA_TOTAL_VRAM_REQUEST = "total.max.vram.request"
    QUOTA_TOTAL_COMPUTE_LIMIT = "total.max.tflops.limit"
    QUOTA_TOTAL_VRAM_LIMIT = "total.max.vram.limit"
    QUOTA_TOTAL_WORKERS = "total.max.workers.limit"
    QUOTA_TOTAL_CORES = "total.max.cores.limit"


NEVER_PLACED = frozenset({Code.TOO_LARGE, Code.ABOVE_LIMIT})
"""Codes of a session that is not placed although all else ends: only other nodes, limits or requests help."""

_OF_ZONES = frozenset(
    {Code.TOPOLOGY_UNKNOWN, Code.NODE_POLICY_WEAKER, Code.ZONES_TOO_MANY}
    | {Code.NOT_ALIGNED, Code.SHORT_ALLOCATION, Code.BROKEN_CORES, Code.NOT_LINKED, Code.OFF_SWITCH}
)


@dataclass(frozen=True, slots=True)
class QuotaFigures:
    """Numbers of a quota that refused: that of the request's own namespace, or of one above it.

    They are GFLOPS, bytes, cards or workers, according to the code. A cap on one request compares `requested` of one
    card with `limit` and has nothing `used`; a cap on the namespace compares `used` + `requested`. `fault` says what
    of the quota cannot be read; "" if all of it can.
    """

    namespace: str
    requested: int
    limit: int
    used: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ZoneNeed:
    """How much of a resource must lie in the same zones: a count, or bytes of memory and huge pages."""

    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class ZoneRoom:
    """The amount of a resource that a zone has free for a request, and its total: a count, or bytes of memory."""

    zone: int
    resource: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """One violated constraint of a node or one of its cards; amounts are in the dimension's own unit.

    `mode` is the isolation mode of the card's present users, where that is the reason. For alignment, `zones` are the
    amounts of each zone of the node, and `rule` the rule of the smallest width. `needs` is what is requested of zones:
    one resource if no zone has enough of it, else all that must lie together. `container` is the one of several
    containers that requests it. `resource` names what is used up where the code does not, and `own` is the part of
    `had` that the requester itself holds. With `when_empty`, `zones` and `had` are those of the node without any
    users. `wanted` and `found` are what the request names of cards or nodes and what there is instead, in words.
    `subgroup` is the part of a gang that lacks members or room; its `resource` is then the level that it stays within,
    or what of it is counted.
    """

    code: Code
    cure: Cure
    needed: int = 0
    had: int = 0
    node: str | None = None
    gpu: str | None = None
    quota: QuotaFigures | None = None
    mode: Isolation | None = None
    zones: tuple[ZoneRoom, ...] = ()
    needs: tuple[ZoneNeed, ...] = ()
    container: str | None = None
    rule: str = ""
    resource: str = ""
    own: int = 0
    subgroup: str = ""
    when_empty: bool = field(default=False, compare=False)
    wanted: str = field(default="", compare=False)
    found: tuple[str, ...] = field(default=(), compare=False)

    @property
    def of_zones(self) -> bool:
        """Whether the zones of the node, or resources allocated by zone, are the reason."""
        return self.code in _OF_ZONES
