"""Why a request was not placed: a value, never an exception, never parsed from text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cure(StrEnum):
    """What kind of change could help."""

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
    QUEUE_LIMIT = "queue-limit"
    APPLICATION_LIMIT = "application-limit"
    SHARE = "fair-share-reached"
    GANG_INCOMPLETE = "gang-incomplete"
    GANG_ROOM = "gang-does-not-fit"
    BIND_FAILURES = "bind-failures"
    BACKOFF = "gang-backoff"
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
    CAPACITY_UNKNOWN = "gpu-capacity-unknown"
    ISOLATION_POLICY = "isolation-policy"
    ISOLATION_LOCKED = "isolation-locked"
    ISOLATION_CONFLICT = "isolation-conflict"
    ISOLATION_UNSUPPORTED = "isolation-unsupported"
    WRONG_INDEX = "wrong-index"
    WRONG_MODEL = "wrong-model"
    WRONG_VENDOR = "wrong-vendor"
    NODE_AFFINITY = "node-affinity"
    NODE_UNKNOWN = "node-unknown"
    NO_PARTITION_TEMPLATE = "no-partition-template"
    GPU_NOT_IDLE = "gpu-not-idle"
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


@dataclass(frozen=True, slots=True)
class Rejection:
    """One constraint that said no, of a node or one of its cards; amounts are in the dimension's own unit."""

    code: Code
    cure: Cure
    needed: int = 0
    had: int = 0
    node: str | None = None
    gpu: str | None = None
