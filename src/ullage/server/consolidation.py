"""The handler of consolidation."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest

from ullage.core.evicting.consolidation import check_units
from ullage.core.evicting.moves import Consolidation, NoConsolidation
from ullage.model.claim import Claim, Request
from ullage.model.error import invalid
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.server import bodies
from ullage.server.access import needs
from ullage.server.allocations import BODY_LIMIT, Refused
from ullage.server.durable import durable
from ullage.server.room_plan import room_plan
from ullage.server.routes import Answer, LongBody, route
from ullage.server.searches import Searches, retried
from ullage.service.pages import written
from ullage.service.service import UllageService
from ullage.wire import consolidation as wire
from ullage.wire.allocation import UNNAMED

_ACCEPTED = 202
"""The HTTP status when workloads were asked to end."""


class ConsolidationApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService, searches: Searches) -> None:
        self._service = service
        self._searches = searches

    @route("POST", "/v1/room", "allocations", body=wire.MakeRoom, others=((_ACCEPTED, wire.RoomPlan),))
    @needs(Role.OPERATOR)
    async def make_room(self, request: HttpRequest) -> LongBody[wire.RoomPlan] | Answer:
        """Return the moves that would free whole cards; without `dry_run` start them."""
        body = await bodies.read_body(request, wire.MakeRoom, BODY_LIMIT)
        asked, uids = self._asked(body), _uids(body)
        if body.dry_run:
            plan = await self._plan(request, asked, body)
            return lambda: room_plan(plan)
        found = await retried(lambda: self._carry_out(request, asked, body, uids))
        if isinstance(found, NoConsolidation):
            raise Refused(found)
        return Answer(_ACCEPTED, lambda: room_plan(found, uids))

    async def _plan(self, request: HttpRequest, asked: Request, body: wire.MakeRoom) -> Consolidation | NoConsolidation:
        planning = self._service.consolidations.planning
        return await self._searches.result_for(request, lambda: planning(asked, body.count, body.up_to))

    async def _carry_out(
        self, request: HttpRequest, asked: Request, body: wire.MakeRoom, uids: list[str]
    ) -> Consolidation | NoConsolidation:
        consolidations = self._service.consolidations
        consolidations.check_uids(uids)
        found = await self._plan(request, asked, body)
        if isinstance(found, NoConsolidation):
            return found
        confirmed = await written(consolidations.confirming(asked, body.up_to, found))
        return await durable(consolidations.carry_out_plan, asked, uids, body.up_to, confirmed)

    def _asked(self, body: wire.MakeRoom) -> Request:
        claim = Claim(namespace=check_name("namespace", body.namespace), priority=body.priority)
        return self._service.quotas.admit(Request(UNNAMED, bodies.requirement(body.resreq, self._service.numa), claim))


def _uids(body: wire.MakeRoom) -> list[str]:
    check_units(body.count)  # before a list of this length is built
    if body.uids is None:
        return [f"room-{number}" for number in range(1, body.count + 1)]
    if len(set(body.uids)) != len(body.uids) or len(body.uids) != body.count:
        raise invalid("uids", body.uids, f"name {body.count} different uids, one for each request")
    return [check_name("uids", uid) for uid in body.uids]
