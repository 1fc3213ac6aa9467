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


@dataclass(frozen=True, slots=True)
class Rejection:
    """One constraint that said no: needed and had are in the dimension's own unit."""

    code: Code
    cure: Cure
    needed: int = 0
    had: int = 0
    node: str | None = None
