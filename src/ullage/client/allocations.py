"""Routes of the HTTP API for requests for cards, gangs and quotas."""

from __future__ import annotations

import msgspec

from ullage.client.body import encode_body
from ullage.client.rows import Rows
from ullage.client.transport import Transport, path_of
from ullage.wire.allocation import (
    AdjustAllocation,
    AdjustmentBody,
    AllocationBody,
    CreateAllocation,
    FreedBody,
    PlanBody,
    PlanRequest,
    PutQuotaBody,
    QuotaBody,
    ReleaseAllocation,
)
from ullage.wire.consolidation import MakeRoom, RoomPlan
from ullage.wire.gang import GangBody, PutGangBody
from ullage.wire.preemption import NOMINATED, NominationBody
from ullage.wire.schema import View


class _State(View, frozen=True, kw_only=True):
    """The field that distinguishes the two kinds of answers."""

    state: str


class Allocations:
    """Calls under `/v1/allocations`, `/v1/plan`, `/v1/room`, `/v1/gangs` and `/v1/quotas`.

    A refusal is raised as `RefusedAnswer` (`client/answer.py`), a `Conflict` with the whole body.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _repr_html_(self) -> str:
        return Rows(self.all())._repr_html_()

    def create(self, spec: CreateAllocation) -> AllocationBody:
        """Place a request; its uid makes a repeat harmless."""
        return self._transport.call("POST", "/v1/allocations", AllocationBody, spec)

    def preempt(self, spec: CreateAllocation) -> AllocationBody | NominationBody:
        """Place a request, or evict others for it; once they have stopped, a repeat gets the room that is reserved."""
        sent = encode_body(msgspec.structs.replace(spec, preempt=True))
        answer = self._transport.request("POST", "/v1/allocations", sent)
        if msgspec.json.decode(answer, type=_State).state == NOMINATED:
            return msgspec.json.decode(answer, type=NominationBody)
        return msgspec.json.decode(answer, type=AllocationBody)

    def nominations(self) -> list[NominationBody]:
        """Return the requests for which room is reserved while others stop."""
        return Rows(self._transport.call("GET", "/v1/nominations", list[NominationBody]))

    def all(self) -> list[AllocationBody]:
        """Return all allocations."""
        return Rows(self._transport.call("GET", "/v1/allocations", list[AllocationBody]))

    def get(self, uid: str) -> AllocationBody:
        """Return one allocation."""
        return self._transport.call("GET", path_of("allocations", uid), AllocationBody)

    def commit(self, uid: str) -> AllocationBody:
        """Commit an assumed allocation: it is bound."""
        return self._transport.call("POST", path_of("allocations", uid, "commit"), AllocationBody)

    def forget(self, uid: str) -> None:
        """Release everything that a request holds."""
        self._transport.request("POST", path_of("allocations", uid, "forget"))

    def release(self, uid: str, within_s: float | None = None) -> AllocationBody:
        """Record that the owner was asked to stop: its cards are free after `free`, or after `within_s` seconds."""
        return self._transport.call(
            "POST", path_of("allocations", uid, "release"), AllocationBody, ReleaseAllocation(within_s=within_s)
        )

    def free(self, uid: str) -> FreedBody:
        """Free the cards of an owner that has stopped."""
        return self._transport.call("DELETE", path_of("allocations", uid), FreedBody)

    def adjust(self, uid: str, change: AdjustAllocation) -> AdjustmentBody:
        """Change how much a request takes of its cards."""
        return self._transport.call("POST", path_of("allocations", uid, "adjust"), AdjustmentBody, change)

    def plan(self, request: PlanRequest) -> PlanBody:
        """Return whether and where a request would be placed, and why."""
        return self._transport.call("POST", "/v1/plan", PlanBody, request)

    def make_room(self, asked: MakeRoom) -> RoomPlan:
        """Return which requests would move so that whole cards are free; without `dry_run` ask their owners to stop."""
        return self._transport.call("POST", "/v1/room", RoomPlan, asked)

    def put_gang(self, key: str, gang: PutGangBody) -> GangBody:
        """Place several requests together; known members are not placed again."""
        return self._transport.call("PUT", path_of("gangs", key), GangBody, gang)

    def gang(self, key: str) -> GangBody:
        """Return the phase and the members of a gang."""
        return self._transport.call("GET", path_of("gangs", key), GangBody)

    def drop_gang(self, key: str) -> None:
        """End a gang and free its cards."""
        self._transport.request("DELETE", path_of("gangs", key))

    def quotas(self) -> list[QuotaBody]:
        """Return all quotas with their usage."""
        return Rows(self._transport.call("GET", "/v1/quotas", list[QuotaBody]))

    def quota(self, namespace: str) -> QuotaBody:
        """Return the quota of a namespace with its usage."""
        return self._transport.call("GET", path_of("quotas", namespace), QuotaBody)

    def put_quota(self, namespace: str, quota: PutQuotaBody) -> QuotaBody:
        """Create or replace the quota of a namespace."""
        return self._transport.call("PUT", path_of("quotas", namespace), QuotaBody, quota)

    def drop_quota(self, namespace: str) -> None:
        """Remove a quota."""
        self._transport.request("DELETE", path_of("quotas", namespace))
