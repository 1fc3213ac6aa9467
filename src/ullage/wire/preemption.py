"""Schemas of preemption: who gives way to a request, what that costs, and for whom room is kept."""

from __future__ import annotations

from ullage.wire.api import RejectionBody, View

NOMINATED = "nominated"
"""The `state` that tells a `NominationBody` from an `AllocationBody`."""


class GivesBody(View, frozen=True, kw_only=True):
    """What a victim gives back on one card; amounts are None where the card's capacity is not known."""

    uuid: str
    compute_gflops: int | None
    vram_bytes: int | None


class VictimBody(View, frozen=True, kw_only=True):
    """One that gives way, what it gives, and why the request does not fit while it stays."""

    uid: str
    namespace: str
    workload: str
    priority: int
    gives: list[GivesBody]
    reason: RejectionBody


class CostBody(View, frozen=True, kw_only=True):
    """What a set of victims costs; the smallest is taken, compared from the first field on.

    The highest priority, the sum of the priorities, how many there are, for how many seconds the oldest
    of the highest priority is bound, and the name of the node.
    """

    highest: int
    priorities: int
    number: int
    age_s: float
    node: str


class AttemptBody(View, frozen=True, kw_only=True):
    """What was tried on one node: how many could be evicted, how many could not by reason, and the outcome.

    `reason` says why the request does not fit there with all of them gone; otherwise `victims` are the uids
    that it takes and `cost` what they cost. With `up_to` only those of at most that priority were tried: a
    set with others would be dearer than that of another node.
    """

    node: str
    eligible: int
    shielded: dict[str, int]
    victims: list[str]
    cost: CostBody | None
    reason: RejectionBody | None
    up_to: int | None


class PreemptionBody(View, frozen=True, kw_only=True):
    """Who would give way, dearest first, and where the request would go; without a `node` nobody helps."""

    node: str | None
    gpus: list[str]
    victims: list[VictimBody]
    cost: CostBody | None
    attempts: list[AttemptBody]


class NominationBody(View, frozen=True, kw_only=True):
    """Room that is kept for a request while the victims leave: ask again when they are freed.

    `since` is when it was last asked for (seconds since the epoch); half an hour later nothing is kept.
    """

    uid: str
    state: str = NOMINATED
    node: str
    gpus: list[str]
    namespace: str
    priority: int
    since: float
    victims: list[VictimBody]
