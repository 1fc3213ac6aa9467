"""What reading a pod gives, and what its pool says where it says nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.claim import Claim, Qos, Request
from ullage.model.error import invalid
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.ask import DeviceAsk
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.pod.vendors import VENDORS


class Dialect(StrEnum):
    """Whose words a pod uses; plain ones are the resources of device plugins alone."""

    OURS = "ullage"
    TENSOR_FUSION = "tensor-fusion"
    HAMI = "hami"
    PLAIN = "device-plugin"


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """What the pool, or the cluster, says where a pod says nothing; `vendors` are those a pod may name."""

    pool: str | None = None
    isolation: Isolation = Isolation.SOFT
    qos: Qos = Qos.MEDIUM
    vendors: tuple[str, ...] = VENDORS


PLAIN_DEFAULTS = PodDefaults()


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod asks for and whose it is; `uid` is "" before the pod has one.

    `container_gpu_counts` says how its cards are split between containers (empty: all see all), `strategy`
    goes before that of the pool, `warnings` are for the one who wrote the pod. `idle_only`: it wants cards that
    nobody else has, as refusals say. `dialect` says whose words it uses, `devices` what its containers ask of a
    device plugin that hands out the cards that a scheduler names (None: nothing).
    """

    uid: str
    requirement: ResourceRequirement
    claim: Claim
    domain: str = DOMAIN
    container_gpu_counts: dict[str, int] = field(default_factory=dict, hash=False)
    warnings: tuple[str, ...] = ()
    strategy: str | None = None
    idle_only: bool = False
    dialect: Dialect = Dialect.OURS
    devices: DeviceAsk | None = None
    together: tuple[ResourceRequirement, ...] = ()
    """What it asks where its containers share cards, most cards first: for nodes without a card for each container."""

    @property
    def shared(self) -> tuple[PodRequest, ...]:
        """The same pod with containers that share cards, most cards first; none if they cannot."""
        return tuple(replace(self, requirement=each, container_gpu_counts={}, together=()) for each in self.together)

    @property
    def request(self) -> Request:
        """The request that is placed.

        Raises:
            InvalidRequest: the pod has no uid yet.

        """
        if not self.uid:
            raise invalid("metadata.uid", self.uid, "only a pod that was created can be placed")
        return Request(self.uid, self.requirement, self.claim, self.strategy)

    def key(self, name: str) -> str:
        """A key of this pod in full."""
        return f"{self.domain}/{name}"
