"""Whose a request is, beyond what it asks: the facts that quotas, preemption and gangs look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.part import Part
from ullage.model.quantity import MAX_INT32, MAX_INT64, PPM, format_bytes, format_decimal
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.resources import show_milli


class Qos(StrEnum):
    """Quality of service; it decides neither filters nor scores."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


PRIORITIES = {Qos.LOW: 0, Qos.MEDIUM: 0, Qos.HIGH: 10_000, Qos.CRITICAL: 100_000}
"""The priority that comes with a quality of service when none is given."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Compute in GFLOPS (or in millionths of each card) and vram in bytes, per card.

    Raises:
        InvalidRequest: an amount is negative, not an integer, above a whole card, or given in both units.

    """

    compute_gflops: int = 0
    vram_bytes: int = 0
    compute_ppm: int = 0

    def __post_init__(self) -> None:
        for name, most in (("compute_gflops", MAX_INT64), ("vram_bytes", MAX_INT64), ("compute_ppm", PPM)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
                raise invalid(name, value, f"an integer from 0 to {most} is needed")
        if self.compute_gflops and self.compute_ppm:
            raise invalid("compute_ppm", self.compute_ppm, "compute_gflops is given too; keep one of the two")

    def check_covers(self, request: Amounts | Part, field: str = "limit") -> None:
        """Refuse a limit that is below its request in what both say in one unit; an amount of 0 is none.

        Raises:
            InvalidRequest: it is.

        """
        for name, show, asked, most in (
            ("tflops", show_milli, request.compute_gflops, self.compute_gflops),
            ("percent", _percent, request.compute_ppm, self.compute_ppm),
            ("vram", format_bytes, request.vram_bytes, self.vram_bytes),
        ):
            if 0 < most < asked:
                raise invalid(f"{field}.{name}", show(most), f"{show(asked)} is asked; a limit is at least that")


def _percent(ppm: int) -> str:
    return format_decimal(ppm * 100)


@dataclass(frozen=True, slots=True)
class GangClaim:
    """Membership in a group that is placed together: `required` of `desired` members, within `timeout_s`.

    `domain` is a label of nodes, or several with commas, the outermost level first: members are placed where
    the last has one value, else the one before it, else few, if they can be. `within` is a label that has one
    value for all of them, or none is placed. With `preempt` work of lower priority gives way to the gang as a
    whole.
    """

    key: str
    required: int
    desired: int
    timeout_s: float | None = None
    domain: str | None = None
    preempt: bool = False
    within: str | None = None

    def __post_init__(self) -> None:
        if self.domain is not None and (not all(self.levels) or len(set(self.levels)) != len(self.levels)):
            fix = "name a label of nodes, or several with commas, each once; or leave it out"
            raise invalid("gang.domain", self.domain, fix)
        if self.within is not None and (not self.within or "," in self.within):
            raise invalid("gang.within", self.within, "name one label of nodes, or leave it out")
        if self.within is not None and self.preempt:
            fix = "a gang that stays in one domain does not preempt; leave out one of preempt and within"
            raise invalid("gang.within", self.within, fix)
        if not 1 <= self.required <= self.desired:
            raise invalid("gang.required", self.required, f"1 to the desired number ({self.desired}) is needed")

    @property
    def levels(self) -> tuple[str, ...]:
        """The labels that say what is near, the outermost level first."""
        return () if self.domain is None else tuple(label.strip() for label in self.domain.split(","))

    @property
    def nearest(self) -> str | None:
        """The deepest level that it names, if any."""
        return self.levels[-1] if self.levels else self.within


@dataclass(frozen=True, slots=True)
class Claim:
    """The owner of an allocation and its standing; `limit` is the most it may use of each card.

    `priority` is a signed 32-bit number, as in Kubernetes; `protected_until` shields it from preemption
    (seconds since the epoch).

    Raises:
        InvalidRequest: the priority is out of range.

    """

    namespace: str = "default"
    workload: str = ""
    pod: str = ""
    pod_uid: str = ""
    limit: Amounts | None = None
    qos: Qos = Qos.MEDIUM
    priority: int = 0
    created_at: float = 0.0
    protected_until: float = 0.0
    gang: GangClaim | None = None
    labels: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.priority, int) or not -MAX_INT32 - 1 <= self.priority <= MAX_INT32:
            raise invalid("priority", self.priority, f"an integer from {-MAX_INT32 - 1} to {MAX_INT32} is needed")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, by whom, under an identity that never changes: a pod's UID, or a request id.

    `strategy` goes before that of the pool.
    """

    uid: str
    requirement: ResourceRequirement
    claim: Claim = Claim()
    strategy: str | None = None

    def __post_init__(self) -> None:
        if not self.uid:
            raise invalid("uid", self.uid, "an identity is needed")
        if not self.requirement.gpu_count:
            raise invalid("gpu", 0, "ask for at least one card")
        if self.requirement.gpu_count > MAX_CARDS:
            raise invalid("gpu", self.requirement.gpu_count, f"one request may ask for {MAX_CARDS} cards at most")
