"""What the parts of a front share: the API server and what is followed of it, the books, and how to report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ullage.kube.client.api import KubeApi
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.client.objects import Pod
from ullage.kube.controller import OnError
from ullage.kube.events import RecordEvent
from ullage.kube.followed import Followed
from ullage.kube.pod_cache import CachedReader
from ullage.service.cluster import Cluster
from ullage.wire.dialect import PLAIN_SETTINGS, PodSettings
from ullage.wire.direct_pods import direct_scheduler
from ullage.wire.pod import ReadPod


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeContext:
    """The same value for all parts of one process.

    Writes go through `candidate`, each in a leadership term. All parts read pods with `read_pod`, which follows
    `pod_settings` and caches the last pods. `scheduler` is the name in the pods for which kube-scheduler asks this
    process (empty: not known). `clock` is monotonic, `now` is the time since 1970, `pause` sleeps: all in seconds.
    """

    api: KubeApi
    candidate: Candidate
    cluster: Cluster
    followed: Followed
    pod_settings: PodSettings = PLAIN_SETTINGS
    scheduler: str = "ullage"
    read_pod: ReadPod = field(init=False)
    record_event: RecordEvent = lambda _event: None
    on_error: OnError = lambda _kind, _name, _error: None
    clock: Callable[[], float] = clock_s
    now: Callable[[], float] = time.time
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_pod", CachedReader(self.pod_settings))

    @property
    def direct_scheduler(self) -> str:
        """The name in the pods that this process binds without kube-scheduler; "" if there are none."""
        return direct_scheduler(self.scheduler)

    def is_own(self, pod: Pod) -> bool:
        """Return whether this process binds a pod, as the name of its scheduler says."""
        return bool(self.scheduler) and pod.spec.scheduler_name in (self.scheduler, self.direct_scheduler)

    def is_direct(self, pod: Pod) -> bool:
        """Return whether this process binds a pod without kube-scheduler, once it has no gate."""
        return bool(self.scheduler) and pod.spec.scheduler_name == self.direct_scheduler

    @property
    def domain(self) -> str:
        return self.pod_settings.domain

    def key(self, name: str) -> str:
        return f"{self.domain}/{name}"
