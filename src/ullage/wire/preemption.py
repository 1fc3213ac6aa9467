"""Schemas of preemption: the victims of a request, their cost, and the reserved room."""

from __future__ import annotations

from ullage.wire.explanation import RejectionBody
from ullage.wire.schema import View

NOMINATED = "nominated"
"""The `state` that distinguishes a `NominationBody` from an `AllocationBody`."""


class FreedAmountsBody(View, frozen=True, kw_only=True):
    """The amounts that a victim frees on one card; None where the capacity of the card is not known."""

    uuid: str
    compute_gflops: int | None
    vram_bytes: int | None


class VictimBody(View, frozen=True, kw_only=True):
    """A victim, what it frees, and why the request does not fit while it stays."""

    uid: str
    namespace: str
    workload: str
    priority: int
    gives: list[FreedAmountsBody]
    reason: RejectionBody


class CostBody(View, frozen=True, kw_only=True):
    """The cost of a set of victims; the smallest is chosen, compared from the first field on.

    The fields are: the highest priority, the sum of the priorities, their number, for how many seconds the oldest of
    the highest priority has been bound, and the name of the node.
    """

    highest: int
    priorities: int
    number: int
    age_s: float
    node: str


class AttemptBody(View, frozen=True, kw_only=True):
    """The attempt on one node: how many could be evicted, how many could not by reason, and the outcome.

    `reason` says why the request does not fit there with all of them evicted; otherwise `victims` are the uids of the
    needed victims and `cost` their cost. With `up_to` only those of at most that priority were tried: a set with
    others would cost more than that of another node.
    """

    node: str
    eligible: int
    shielded: dict[str, int]
    victims: list[str]
    cost: CostBody | None
    reason: RejectionBody | None
    up_to: int | None


class PreemptionBody(View, frozen=True, kw_only=True):
    """The victims, most expensive first, and where the request would go; without a `node` no eviction helps."""

    node: str | None
    gpus: list[str]
    victims: list[VictimBody]
    cost: CostBody | None
    attempts: list[AttemptBody]


class NominationBody(View, frozen=True, kw_only=True):
    """Room that is reserved for a request while its victims stop: repeat the request when they are gone.

    `since` is when it was last requested (seconds since the epoch); half an hour later the reservation ends.
    """

    uid: str
    state: str = NOMINATED
    node: str
    gpus: list[str]
    namespace: str
    priority: int
    since: float
    victims: list[VictimBody]
