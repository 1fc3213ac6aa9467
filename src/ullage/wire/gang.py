"""Schemas of gangs of requests for cards under `/v1/gangs`."""

from __future__ import annotations

from ullage.wire.allocation import AllocationBody, CreateAllocation
from ullage.wire.api import Schema, View


class PutGang(Schema, frozen=True, kw_only=True):
    """Requests that are placed together, over several nodes if need be; `required` of them or none.

    Without `required` all are. A wait longer than `timeout_s` ends in a back-off; 0 waits for ever. With
    `domain`, a label of nodes, members are put where it has one value, or few, if they can be; it may name
    several levels with commas, the outermost first (`block,rack`), and then the last that has one value for all
    of them counts. With `within`, a label too, they are put where it has one value, or nowhere. With `preempt`
    work of lower priority gives way: all that is needed leaves, or nobody; not together with `within`.
    """

    members: list[CreateAllocation]
    required: int | None = None
    timeout_s: float = 0.0
    domain: str | None = None
    preempt: bool = False
    within: str | None = None


class GangMember(View, frozen=True, kw_only=True):
    """One member: what it holds, or the code and message of why it holds nothing."""

    uid: str
    allocation: AllocationBody | None
    code: str | None
    message: str


class GangBody(View, frozen=True, kw_only=True):
    """A gang. `phase` is pending, waiting, scheduling, running, timed-out or failed.

    `domain` is the last level that says what is near, `domains` over how many of its values the members with
    cards are spread.
    """

    key: str
    phase: str
    domain: str | None
    domains: int
    members: list[GangMember]
