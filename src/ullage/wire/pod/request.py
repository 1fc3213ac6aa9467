"""The request of a pod, and the defaults of its pool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.claim import Claim, Qos, Request
from ullage.model.error import invalid
from ullage.model.family_ids import uid_of
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.vendors.container_request import FamilyRequest
from ullage.wire.vendors.shipped import SLICED, VENDORS


class Dialect(StrEnum):
    """The dialect of a pod's request; a plain one uses the resources of device plugins alone."""

    OURS = "ullage"
    TENSOR_FUSION = "tensor-fusion"
    HAMI = "hami"
    PLAIN = "device-plugin"


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """The defaults of the pool, or of the cluster, for a pod; `vendors` are those a pod may name."""

    pool: str | None = None
    isolation: Isolation = Isolation.SOFT
    qos: Qos = Qos.MEDIUM
    vendors: tuple[str, ...] = VENDORS


PLAIN_DEFAULTS = PodDefaults()


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The request of a pod and its claim; `uid` is "" before the pod has one.

    `container_gpu_counts` says how its cards are split between containers (empty: all see all). `strategy` overrides
    that of the pool, `warnings` are for the author of the pod. `idle_only`: it requests cards without other users, as
    refusals say. `devices` are the requests of its containers to a device plugin that hands out the cards that a
    scheduler names (None: there are none).
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
    devices: FamilyRequest | None = None
    nothing: tuple[tuple[str, str], ...] = ()
    """The annotations that state an amount of 0, by full key, with their values."""
    together: tuple[ResourceRequirement, ...] = ()
    """The requests where its containers share cards, most cards first: for nodes without a card for each container.

    Of slices that exist already these are the other ways to lie on cards, the fewest cards first.
    """
    further: tuple[PodRequest, ...] = ()
    """The requests for cards of further families, each under an id of its own (`ullage.model.family_ids`)."""

    @property
    def by_family(self) -> tuple[PodRequest, ...]:
        """Return the request for each family of which the pod requests cards."""
        return (self, *self.further)

    @property
    def one_of_several(self) -> bool:
        """Whether the pod also requests cards of another family."""
        return bool(self.further) or uid_of(self.uid) != self.uid

    @property
    def family(self) -> str:
        """The family of the requested cards, as refusals name it; "" where it is not stated."""
        return ", ".join(self.requirement.cards.vendors)

    @property
    def shared(self) -> tuple[PodRequest, ...]:
        """Return the same request with containers that share cards, most cards first; none if they cannot."""
        return tuple(replace(self, requirement=each, container_gpu_counts={}, together=()) for each in self.together)

    @property
    def slice_is_named(self) -> bool:
        """Whether it requests slices of which a record says which ones it has; others are picked by its kubelet."""
        cards = self.requirement.cards
        return cards.isolation is Isolation.PARTITIONED and not SLICED.issuperset(cards.vendors or ("",))

    @property
    def request(self) -> Request:
        """Return the request for the allocator."""
        if not self.uid:
            raise invalid("metadata.uid", self.uid, "only a pod that was created can be placed")
        return Request(self.uid, self.requirement, self.claim, self.strategy)

    def key(self, name: str) -> str:
        """Return the full key of an annotation of this pod."""
        return f"{self.domain}/{name}"
