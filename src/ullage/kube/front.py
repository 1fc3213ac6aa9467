"""One process in front of a cluster: what it watches, what it knows, and whether it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ullage.kube.bindings.conflicting_claims import ConflictingClaims
from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.upkeep import Upkeep
from ullage.kube.claims.claiming import Claiming
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.claims.making import ClaimMaking
from ullage.kube.client.informer import Informer
from ullage.kube.client.lease import Candidate
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL
from ullage.kube.device_plugins import DevicePlugins
from ullage.kube.events import EventRecorder
from ullage.kube.evicting.preemption import Preemptor
from ullage.kube.extender.extender import Extender
from ullage.kube.followed import Followed
from ullage.kube.leader.takeover import Takeover
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.kube.mirror.mirror import Mirror
from ullage.kube.queues.admission import AdmissionController
from ullage.kube.resource_quotas import ResourceQuotas
from ullage.service.bindings import Bindings
from ullage.service.cluster import Cluster


class Running(Protocol):
    """A task that runs until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FrontClaims:
    mirror: DeviceMirror
    claiming: Claiming
    making: ClaimMaking | None = None


@dataclass(frozen=True, slots=True)
class FrontBindings:
    """The store of bindings, the filter of pods by them, their upkeep, and the use cases of the API."""

    store: KubeBindings
    filter: BindingFilter
    upkeep: Upkeep
    use: Bindings
    conflicting_claims: ConflictingClaims


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """One process. `run` runs all its `parts` until cancelled; `extender` answers once it is ready.

    Every process watches the cluster, and only the leader decides. What is not configured is None.
    """

    context: KubeContext
    parts: Sequence[Running]
    mirror: Mirror
    takeover: Takeover
    unconfirmed: UnconfirmedBinds
    plugins: DevicePlugins
    extender: Extender
    events: EventRecorder
    admission: AdmissionController
    quotas: ResourceQuotas | None = None
    claims: FrontClaims | None = None
    bindings: FrontBindings | None = None
    preemptor: Preemptor | None = None

    @property
    def candidate(self) -> Candidate:
        return self.context.candidate

    @property
    def cluster(self) -> Cluster:
        return self.context.cluster

    @property
    def followed(self) -> Followed:
        return self.context.followed

    @property
    def nodes(self) -> Informer[KubeNode]:
        return self.followed.nodes

    @property
    def pods(self) -> Informer[Pod]:
        return self.followed.pods

    @property
    def unfollowed(self) -> str:
        """The reason why this process cannot answer even what needs no leader; "" if it can."""
        if not self.followed.namespaces.synced:
            return "namespaces are not read"
        return "" if self.mirror.ready else "what the cluster holds has not been read yet"

    def errors(self, silent_s: float = 0.0) -> dict[str, str]:
        """Return why a kind was not updated for `silent_s` seconds, by kind, and why this process does not lead."""
        found = [(each.kind.plural, each.last_error) for each in self.followed.all if each.age_s >= silent_s]
        if self.candidate.epoch is None:
            found.append(("leases", self.candidate.last_error))
        elif self.candidate.epoch != self.mirror.term:
            found.append(("takeover", self.takeover.controller.error_of(ALL)))
        return {name: error.message for name, error in found if error}

    async def run(self) -> None:
        """Watch the cluster and try to become the leader. Any failure ends all parts."""
        async with asyncio.TaskGroup() as tasks:
            for part in self.parts:
                tasks.create_task(part.run())

    async def release(self) -> None:
        """Release the lease at once. No request or write may follow.

        While the outcome of a bind is unknown, or of one in an earlier term, the lease expires instead: the next leader
        then determines the outcome.
        """
        if self.unconfirmed.quiet and self.mirror.term == self.candidate.epoch:
            await self.candidate.release()
