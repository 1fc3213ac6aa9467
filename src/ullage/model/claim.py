"""The owner and standing of a request: the facts that quotas, preemption and gangs use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.part import Part
from ullage.model.quantity import MAX_INT32, check_range
from ullage.model.request import MAX_CARDS, ResourceRequirement


class Qos(StrEnum):
    """Quality of service; it affects neither filters nor scores."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


PRIORITIES = {Qos.LOW: 0, Qos.MEDIUM: 0, Qos.HIGH: 10_000, Qos.CRITICAL: 100_000}
"""The priority of a quality of service when no priority is given."""


def _levels_of(domain: str | None) -> tuple[str, ...]:
    """Return the labels of levels, the outermost first."""
    return () if domain is None else tuple(label.strip() for label in domain.split(","))


def check_levels(of: str, domain: str | None, within: str | None) -> None:
    """Refuse levels that name no label, or one of them twice; `of` is what the names of the fields begin with."""
    levels = _levels_of(domain)
    if domain is not None and (not all(levels) or len(set(levels)) != len(levels)):
        fix = "name a label of nodes, or several with commas, each once; or leave it out"
        raise invalid(f"{of}domain", domain, fix)
    if within is not None and (not within or "," in within):
        raise invalid(f"{of}within", within, "name one label of nodes, or leave it out")


@dataclass(frozen=True, slots=True)
class Subgroup:
    """Members of a gang that are placed near each other, with `domain` and `within` of their own as in `GangClaim`.

    `required` members start together; or so many of the subgroups inside it, if it has any. It starts whole or not at
    all. With 0 its members start one by one.
    """

    name: str
    required: int = 0
    domain: str | None = None
    within: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise invalid("subgroup.name", self.name, "a name is needed")
        if self.required < 0:
            raise invalid("subgroup.required", self.required, "0 or more is needed")
        check_levels("subgroup.", self.domain, self.within)

    @property
    def levels(self) -> tuple[str, ...]:
        """The labels of the levels, the outermost first."""
        return _levels_of(self.domain)


@dataclass(frozen=True, slots=True)
class GangClaim:
    """Membership in a group that is placed together: `required` of `desired` members, within `timeout_s`.

    `domain` is a label of nodes, or several with commas, the outermost level first. Members are placed where the last
    level has one value, else the one before it, else few values, if possible. `within` is a label that must have one
    value for all members. With `preempt` work of lower priority is evicted for the gang as a whole.

    `subgroups` are those that the member is in, the outermost first. `required_subgroups` of the outermost ones start
    together, where those whose `required` is 0 do not count; members of a gang with subgroups state it.
    """

    key: str
    required: int
    desired: int
    timeout_s: float | None = None
    domain: str | None = None
    preempt: bool = False
    within: str | None = None
    subgroups: tuple[Subgroup, ...] = ()
    required_subgroups: int | None = None

    def __post_init__(self) -> None:
        check_levels("gang.", self.domain, self.within)
        if self.within is not None and self.preempt:
            fix = "a gang that stays in one domain does not preempt; leave out one of preempt and within"
            raise invalid("gang.within", self.within, fix)
        if self.subgroups and self.required_subgroups is None:
            raise invalid("gang.required_subgroups", None, "state how many of the outermost subgroups start together")
        if self.divided and self.preempt:
            fix = "a gang with subgroups does not preempt; leave out one of preempt and required_subgroups"
            raise invalid("gang.required_subgroups", self.required_subgroups, fix)
        if not 1 <= self.required <= self.desired:
            raise invalid("gang.required", self.required, f"1 to the desired number ({self.desired}) is needed")

    @property
    def levels(self) -> tuple[str, ...]:
        """The labels of the levels, the outermost first."""
        return _levels_of(self.domain)

    @property
    def innermost(self) -> str | None:
        """The last level, else `within`."""
        return self.levels[-1] if self.levels else self.within

    @property
    def divided(self) -> bool:
        """Whether the gang consists of subgroups."""
        return self.required_subgroups is not None

    @property
    def required_levels(self) -> tuple[str | None, ...]:
        """The required level of the gang, and of each subgroup that the member is in."""
        return (self.within, *(each.within for each in self.subgroups))

    @property
    def path(self) -> SubgroupPath:
        """The names of the subgroups that the member is in, the outermost first."""
        return tuple(each.name for each in self.subgroups)


SubgroupPath = tuple[str, ...]
"""The names of nested subgroups, the outermost first."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The owner of an allocation and its standing; `limit` is the most it may use of each card.

    `priority` is a signed 32-bit number, as in Kubernetes; until `protected_until` (seconds since the epoch) it cannot
    be preempted. Quotas on limits count the limit, and never less than what is charged; with `counts_as_written` they
    count the limit as it is written, where a card is held whole for its compute alone.
    """

    namespace: str = "default"
    workload: str = ""
    pod: str = ""
    pod_uid: str = ""
    limit: Part | None = None
    qos: Qos = Qos.MEDIUM
    priority: int = 0
    created_at: float = 0.0
    protected_until: float = 0.0
    gang: GangClaim | None = None
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    counts_as_written: bool = False
    quota: str = ""
    """The name of the quota that it counts in; "" is its namespace."""
    owner: str = ""
    """The user who asked by the API; "" if somebody else did."""

    @property
    def quota_name(self) -> str:
        """The name of the quota that it counts in."""
        return self.quota or self.namespace

    @property
    def counted_limit(self) -> tuple[Part | None, bool]:
        """The facts that quotas on limits use: the limit, and how it counts."""
        return self.limit, self.counts_as_written

    def limit_usage(self, charged: tuple[int, int], limit: tuple[int, int]) -> tuple[int, int]:
        """Return the compute and vram on a card that count in quotas on limits."""
        if self.counts_as_written and self.limit is not None:
            return limit
        (compute, vram), (compute_limit, vram_limit) = charged, limit
        return max(compute, compute_limit), max(vram, vram_limit)

    def protected(self, until: float) -> Claim:
        """Return the claim protected from preemption until then at least (seconds since the epoch)."""
        return self if until <= self.protected_until else replace(self, protected_until=until)

    def __post_init__(self) -> None:
        check_range("priority", self.priority, -MAX_INT32 - 1, MAX_INT32)


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its owner and an identity that never changes: a pod's UID, or a request id.

    It asks for cards, or has containers that are aligned by something else.

    `strategy` overrides that of the pool.
    """

    uid: str
    requirement: ResourceRequirement
    claim: Claim = Claim()
    strategy: str | None = None

    def __post_init__(self) -> None:
        if not self.uid:
            raise invalid("uid", self.uid, "an identity is needed")
        if not self.requirement.gpu_count and not self.requirement.alignment.containers:
            raise invalid("gpu", 0, "request at least one card")
        if self.requirement.gpu_count > MAX_CARDS:
            raise invalid("gpu", self.requirement.gpu_count, f"one request has at most {MAX_CARDS} cards")

    @classmethod
    def of(cls, uid: str, asked: str, claim: Claim | None = None, *, strategy: str | None = None) -> Request:
        """Return the request of a text such as `tflops=40,vram=10g`."""
        return cls(uid, ResourceRequirement.from_string(asked), claim or Claim(), strategy)

    def check(self) -> None:
        """Refuse a limit below the request, in dimensions where both have the same unit."""
        if self.claim.limit is not None and self.requirement.part is not None:
            self.claim.limit.check_covers(self.requirement.part)
