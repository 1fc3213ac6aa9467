"""The lock of a node: the pod whose devices its plugin hands out next. It is an annotation that the binder sets.

A kubelet passes a device plugin the number of devices of a container, but not its pod. HAMi's plugin takes the pod
that the lock names. So only one pod at a time can be in this state on a node. The state lasts from the bind until the
plugin has handed out the devices, reported it on the pod (`results.BIND_PHASE`) and removed the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ullage.wire.vendors.family import ANNOTATIONS, LockRule

LOCK = f"{ANNOTATIONS}/mutex.lock"

OWNER = LockRule(annotation=LOCK)
"""The lock of most families."""

LOCK_EXPIRES_S = 300.0
"""Seconds after which a lock that was not removed expires; all writers of locks must use the same time."""

LOCK_WAIT_S = 28.0
"""Seconds that a pod waits for the lock; then kube-scheduler, which waits a little longer, tries again later."""


@dataclass(frozen=True, slots=True)
class NodeLock:
    """The time of the lock in seconds since 1970 (None: unreadable), and its pod ("": not stated)."""

    at: float | None
    namespace: str = ""
    pod: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.pod

    def expired(self, now: float, expires_s: float = LOCK_EXPIRES_S) -> bool:
        """Return whether the lock has expired. An unreadable lock always has: no plugin finds a pod by it."""
        return self.at is None or now - self.at > expires_s

    def encode(self, rule: LockRule = OWNER) -> str:
        """Return the lock as text: `time,namespace,pod`, or the time alone where the rule has no owner."""
        at = datetime.fromtimestamp(self.at or 0.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{at},{self.namespace},{self.pod}" if rule.format == "owner" else at


def read_lock(text: str) -> NodeLock:
    """Return the lock in an annotation: `time,namespace,pod`, or the time alone from older writers."""
    moment, *named = text.split(",")
    try:
        at = datetime.fromisoformat(moment)
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return NodeLock(None)
    match named:
        case []:
            return NodeLock(since)
        case [namespace, pod]:
            return NodeLock(since, namespace, pod)
        case _:
            return NodeLock(None)
