"""Schemas of gangs of requests for cards under `/v1/gangs`."""

from __future__ import annotations

from ullage.wire.allocation import AllocationBody, CreateAllocation
from ullage.wire.schema import Schema, View


class PutGangBody(Schema, frozen=True, kw_only=True):
    """Requests that are placed together, over several nodes if needed; at least `required` of them or none.

    Without `required` all are required. A wait longer than `timeout_s` ends in a back-off; 0 waits without end.
    `domain` is a label of nodes: the members are placed where it has one value, or few values, if possible. It may
    name several levels with commas, the outermost first (`block,rack`); then the last level with one value for all
    members counts. With `within`, a label too, the members are placed where it has one value, or not at all. With
    `preempt` work of lower priority is evicted: all that is needed, or none; not together with `within`.
    """

    members: list[CreateAllocation]
    required: int | None = None
    timeout_s: float = 0.0
    domain: str | None = None
    preempt: bool = False
    within: str | None = None


class GangMember(View, frozen=True, kw_only=True):
    """One member: what it holds, or the code and message of its refusal."""

    uid: str
    allocation: AllocationBody | None
    code: str | None
    message: str


class GangBody(View, frozen=True, kw_only=True):
    """A gang. `phase` is pending, waiting, scheduling, running, timed-out or failed.

    `domain` is the last configured level, `domains` the number of its values over which the members with cards are
    spread.
    """

    key: str
    phase: str
    domain: str | None
    domains: int
    members: list[GangMember]
