"""Handlers of gangs of requests for cards."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request as HttpRequest

from ullage.core.admitting.gang_state import Answer
from ullage.model.allocation import Allocation
from ullage.model.claim import GangClaim, Request
from ullage.model.error import invalid
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.server import bodies
from ullage.server.access import Whose, needs
from ullage.server.allocations import BODY_LIMIT, AllocationApi, refusal_body, seconds_of
from ullage.server.durable import durable
from ullage.server.routes import route
from ullage.service.gangs import GangStatus
from ullage.service.service import UllageService
from ullage.wire import gang as wire
from ullage.wire.body import body_of


class GangApi:
    """Handlers over one service; members are read and shown like allocations."""

    def __init__(self, service: UllageService, allocations: AllocationApi) -> None:
        self._gangs = service.gangs
        self._allocations = allocations

    @route("PUT", "/v1/gangs/{key}", "gangs", body=wire.PutGangBody)
    @needs(Role.USER, Whose.OWN)
    async def put_gang(self, request: HttpRequest) -> wire.GangBody:
        """Place several requests together; known members are not placed again."""
        body = await bodies.read_body(request, wire.PutGangBody, BODY_LIMIT)
        key = _key(request)
        return self._body(await durable(self._gangs.put, key, self._requests(request, key, body)))

    @route("GET", "/v1/gangs/{key}", "gangs")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def get_gang(self, request: HttpRequest) -> wire.GangBody:
        """Return the phase and the members of a gang."""
        return self._body(self._gangs.status(_key(request)))

    @route("DELETE", "/v1/gangs/{key}", "gangs")
    @needs(Role.USER, Whose.OWN)
    async def delete_gang(self, request: HttpRequest) -> None:
        """End a gang and free its cards."""
        await durable(self._gangs.drop, _key(request))

    def _requests(self, http: HttpRequest, key: str, body: wire.PutGangBody) -> list[Request]:
        uids = {member.uid for member in body.members}
        if not body.members or len(uids) != len(body.members):
            raise invalid("members", sorted(uids), "name at least one request, each with a uid of its own")
        for member in body.members:
            if member.gpus is not None or not member.commit:
                fix = "the cards of a gang are chosen and bound together; leave out gpus and commit"
                raise invalid("members", member.uid, fix)
            if member.preempt:
                raise invalid("members.preempt", member.uid, "a gang preempts as a whole; state it for the gang")
        timeout_s = seconds_of("timeout_s", body.timeout_s) or None
        required = len(uids) if body.required is None else body.required
        claim = GangClaim(
            key, required, len(uids), timeout_s, domain=body.domain, preempt=body.preempt, within=body.within
        )
        requests = [self._allocations.request(http, member) for member in body.members]
        return [replace(request, claim=replace(request.claim, gang=claim)) for request in requests]

    def _body(self, status: GangStatus) -> wire.GangBody:
        members = [self._member(uid, answer) for uid, answer in status.answers.items()]
        return body_of(wire.GangBody, status, members=members)

    def _member(self, uid: str, answer: Answer | None) -> wire.GangMember:
        if isinstance(answer, Allocation):
            return wire.GangMember(uid=uid, allocation=self._allocations.body(answer), code=None, message="")
        if answer is None:
            return wire.GangMember(uid=uid, allocation=None, code=None, message="not tried yet")
        refusal = refusal_body(answer)
        return wire.GangMember(uid=uid, allocation=None, code=refusal.code, message=refusal.message)


def _key(request: HttpRequest) -> str:
    return check_name("gang", request.path_params["key"])
