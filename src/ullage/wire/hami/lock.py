"""The lock of a node: whose devices its plugin hands out next. It stands in an annotation, and whoever binds takes it.

A kubelet tells a device plugin how many devices a container needs, but not whose container it is. HAMi's plugin
takes the pod that the lock names. So there is one such pod at a time on a node, from its binding until the plugin
has handed out its devices, told so on the pod (`results.BIND_PHASE`) and taken the lock away.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ullage.wire.hami.words import ANNOTATIONS

LOCK = f"{ANNOTATIONS}/mutex.lock"

EXPIRES_S = 300.0
"""So long a lock counts if nobody takes it away; everyone who takes one must go by the same time."""

RETRY_S = 28.0
"""How long a pod waits for its turn; then kube-scheduler, which waits a little longer, tries again later."""


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Since when, in seconds since 1970 (None: it cannot be read), and for which pod ("": nobody says)."""

    at: float | None
    namespace: str = ""
    pod: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The pod, by namespace and name."""
        return self.namespace, self.pod

    def expired(self, now: float, expires_s: float = EXPIRES_S) -> bool:
        """Whether it no longer counts. One that nobody can read never did: no plugin finds a pod by it."""
        return self.at is None or now - self.at > expires_s

    def encode(self) -> str:
        """`time,namespace,pod`."""
        at = datetime.fromtimestamp(self.at or 0.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{at},{self.namespace},{self.pod}"


def read_lock(text: str) -> NodeLock:
    """The lock that an annotation holds: `time,namespace,pod`, or of older writers the time alone."""
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
