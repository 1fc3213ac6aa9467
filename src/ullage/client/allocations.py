"""Requests for cards, alone and in gangs, and quotas, as the HTTP API takes them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ullage.client.body import encode_body, path_part
from ullage.client.transport import Transport
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
from ullage.wire.api import View
from ullage.wire.consolidation import MakeRoom, RoomPlan
from ullage.wire.gang import GangBody, PutGangBody
from ullage.wire.preemption import NOMINATED, NominationBody

T = TypeVar("T")


class _State(View, frozen=True, kw_only=True):
    """What tells one kind of answer from another."""

    state: str


class Allocations:
    """Calls under `/v1/allocations`, `/v1/plan`, `/v1/room`, `/v1/gangs` and `/v1/quotas`.

    Cards that are not given are a `Refused` (`client/answer.py`), a `Conflict` with the whole refusal.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, spec: CreateAllocation) -> AllocationBody:
        """Give cards to a request; its uid makes a repeat harmless."""
        return self._call("POST", "/v1/allocations", AllocationBody, spec)

    def preempt(self, spec: CreateAllocation) -> AllocationBody | NominationBody:
        """Give cards to a request, or evict others for it; once they are freed a repeat gives it their room."""
        sent = encode_body(msgspec.structs.replace(spec, preempt=True))
        answer = self._transport.request("POST", "/v1/allocations", sent)
        if msgspec.json.decode(answer, type=_State).state == NOMINATED:
            return msgspec.json.decode(answer, type=NominationBody)
        return msgspec.json.decode(answer, type=AllocationBody)

    def nominations(self) -> list[NominationBody]:
        """Return requests that room is kept for while others leave."""
        return self._call("GET", "/v1/nominations", list[NominationBody])

    def all(self) -> list[AllocationBody]:
        """Return what requests hold."""
        return self._call("GET", "/v1/allocations", list[AllocationBody])

    def get(self, uid: str) -> AllocationBody:
        """Return what one request holds."""
        return self._call("GET", _path(uid), AllocationBody)

    def commit(self, uid: str) -> AllocationBody:
        """Make an assumption bound."""
        return self._call("POST", f"{_path(uid)}/commit", AllocationBody)

    def forget(self, uid: str) -> None:
        """Undo whatever a request holds."""
        self._transport.request("POST", f"{_path(uid)}/forget")

    def release(self, uid: str, within_s: float | None = None) -> AllocationBody:
        """Ask the owner to leave: its cards are free once `free` confirms it, or `within_s` seconds are over."""
        return self._call("POST", f"{_path(uid)}/release", AllocationBody, ReleaseAllocation(within_s=within_s))

    def free(self, uid: str) -> FreedBody:
        """Free the cards of an owner that is gone."""
        return self._call("DELETE", _path(uid), FreedBody)

    def adjust(self, uid: str, change: AdjustAllocation) -> AdjustmentBody:
        """Change how much a request takes of its cards."""
        return self._call("POST", f"{_path(uid)}/adjust", AdjustmentBody, change)

    def plan(self, request: PlanRequest) -> PlanBody:
        """Would it fit, where, and why."""
        return self._call("POST", "/v1/plan", PlanBody, request)

    def make_room(self, asked: MakeRoom) -> RoomPlan:
        """Return which requests would move to free whole cards; without `dry_run` ask their owners to leave."""
        return self._call("POST", "/v1/room", RoomPlan, asked)

    def put_gang(self, key: str, gang: PutGangBody) -> GangBody:
        """Ask for several requests together; members that are known already are answered, not repeated."""
        return self._call("PUT", _gang_path(key), GangBody, gang)

    def gang(self, key: str) -> GangBody:
        """Return how a gang stands."""
        return self._call("GET", _gang_path(key), GangBody)

    def drop_gang(self, key: str) -> None:
        """End a gang and free its cards."""
        self._transport.request("DELETE", _gang_path(key))

    def quotas(self) -> list[QuotaBody]:
        """Return all quotas and how they stand."""
        return self._call("GET", "/v1/quotas", list[QuotaBody])

    def quota(self, namespace: str) -> QuotaBody:
        """Return the quota of a namespace and how it stands."""
        return self._call("GET", _quota_path(namespace), QuotaBody)

    def put_quota(self, namespace: str, quota: PutQuotaBody) -> QuotaBody:
        """Create or replace the quota of a namespace."""
        return self._call("PUT", _quota_path(namespace), QuotaBody, quota)

    def drop_quota(self, namespace: str) -> None:
        """Remove a quota."""
        self._transport.request("DELETE", _quota_path(namespace))

    def _call(self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None) -> T:
        return msgspec.json.decode(self._transport.request(method, path, encode_body(body)), type=answer)


def _path(uid: str) -> str:
    return f"/v1/allocations/{path_part('uid', uid)}"


def _gang_path(key: str) -> str:
    return f"/v1/gangs/{path_part('gang', key)}"


def _quota_path(namespace: str) -> str:
    return f"/v1/quotas/{path_part('namespace', namespace)}"
