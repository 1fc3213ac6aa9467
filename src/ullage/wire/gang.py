"""Schemas of gangs of requests for cards under `/v1/gangs`."""

from __future__ import annotations

from ullage.wire.allocation import AllocationBody, CreateAllocation
from ullage.wire.api import Schema, View


class PutGang(Schema, frozen=True, kw_only=True):
    """Requests that are placed together, over several nodes if need be; `required` of them or none.

    Without `required` all are. A wait longer than `timeout_s` ends in a back-off; 0 waits for ever.
    """

    members: list[CreateAllocation]
    required: int | None = None
    timeout_s: float = 0.0


class GangMember(View, frozen=True, kw_only=True):
    """One member: what it holds, or the code and message of why it holds nothing."""

    uid: str
    allocation: AllocationBody | None
    code: str | None
    message: str


class GangBody(View, frozen=True, kw_only=True):
    """A gang. `phase` is pending, waiting, scheduling, running, timed-out or failed."""

    key: str
    phase: str
    members: list[GangMember]
