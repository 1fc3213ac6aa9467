"""What the parts of a front share: the API server and what is followed of it, the books, and how to report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ullage.kube.client.api import KubeApi
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.controller import OnError
from ullage.kube.events import RecordEvent
from ullage.kube.followed import Followed
from ullage.service.cluster import Cluster
from ullage.wire.dialect import PodReader, read_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeContext:
    """The same value for all parts of one process.

    Writes go through `candidate`, each in a leadership term. Pods are read with `read_pod`, and its domain is that of
    all annotations. `clock` is monotonic, `now` is the time since 1970, `pause` sleeps: all in seconds.
    """

    api: KubeApi
    candidate: Candidate
    cluster: Cluster
    followed: Followed
    read_pod: PodReader = read_pod
    record_event: RecordEvent = lambda _event: None
    on_error: OnError = lambda _kind, _name, _error: None
    clock: Callable[[], float] = clock_s
    now: Callable[[], float] = time.time
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def domain(self) -> str:
        """The domain of annotations and labels."""
        return self.read_pod.settings.domain

    def key(self, name: str) -> str:
        """Return the key of an annotation or a label."""
        return f"{self.domain}/{name}"
