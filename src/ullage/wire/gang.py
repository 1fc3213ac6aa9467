"""Schemas of gangs of requests for cards under `/v1/gangs`."""

from __future__ import annotations

from ullage.wire.allocation import AllocationBody, CreateAllocation
from ullage.wire.api import Schema, View


class PutGang(Schema, frozen=True, kw_only=True):
    """Requests that are placed together, over several nodes if need be; `required` of them or none.

    Without `required` all are. A wait longer than `timeout_s` ends in a back-off; 0 waits for ever. With
    `domain`, a label of nodes, members are put where it has one value, or few, if they can be. With `preempt`
    work of lower priority gives way: all that is needed leaves, or nobody.
    """

    members: list[CreateAllocation]
    required: int | None = None
    timeout_s: float = 0.0
    domain: str | None = None
    preempt: bool = False


class GangMember(View, frozen=True, kw_only=True):
    """One member: what it holds, or the code and message of why it holds nothing."""

    uid: str
    allocation: AllocationBody | None
    code: str | None
    message: str


class GangBody(View, frozen=True, kw_only=True):
    """A gang. `phase` is pending, waiting, scheduling, running, timed-out or failed.

    `domains` is over how many values of the label `domain` the members with cards are spread.
    """

    key: str
    phase: str
    domain: str | None
    domains: int
    members: list[GangMember]
