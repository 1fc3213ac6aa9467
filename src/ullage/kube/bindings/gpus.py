"""The older `/gpus` API: modes as numbers, memory in MiB, cards assigned to applications one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.kube.answering import Meter
from ullage.kube.bindings.http import CallerOf, Handler, body_of, named, routes, terms_of
from ullage.model.compute_result import FailedCheck
from ullage.model.error import Conflict
from ullage.service.bindings import Bindings
from ullage.service.bindings_snapshot import BindingsSnapshot, Caller
from ullage.service.pages import written
from ullage.wire.compute_request import (
    AssignBody,
    BulkAssignBody,
    CardBody,
    ShareModeBody,
    card_bytes,
    check_count,
    check_text,
)
from ullage.wire.gpubinding import share_mode_of
from ullage.wire.gpus import gpu_body


def gpu_routes(bindings: Bindings, caller_of: CallerOf, meter: Meter) -> list[Route]:
    api = _Api(bindings, caller_of)
    rows: list[tuple[str, str, Handler]] = [
        ("GET", "/gpus", api.cards),
        ("POST", "/gpus/{id}/mode", api.mode),
        ("POST", "/gpus/{id}/assign", api.assign),
        ("POST", "/gpus/{id}/unassign", api.unassign),
        ("PUT", "/gpus/assignments/bulk", api.bulk),
    ]
    return routes(meter, rows)


@dataclass(frozen=True, slots=True)
class _Api:
    bindings: Bindings
    caller_of: CallerOf

    async def cards(self, request: Request) -> Response:
        caller = self.caller_of(request)
        snapshot = await self.bindings.snapshot_now()
        return Response(await written(lambda: _cards(snapshot, caller)), media_type="application/json")

    async def mode(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, ShareModeBody)
        share = share_mode_of(body.mode)
        card = (await self.bindings.snapshot_now()).card_of(request.path_params["id"])
        report = await self.bindings.switch(caller, card.key, share, terms_of(request))
        if isinstance(report, FailedCheck):
            blocked = report.switch.blocked if report.switch else ()
            names = ", ".join(f"{each.app.name} of {each.app.owner} is {each.state}" for each in blocked)
            raise Conflict(f"{card.id} cannot be switched now: {names}", code="stop-operation-not-allowed")
        return Response()

    async def assign(self, request: Request) -> Response:
        body = await body_of(request, AssignBody)
        return await self._reassign(request, body.app_name, [CardBody(request.path_params["id"], body.memory)], ())

    async def unassign(self, request: Request) -> Response:
        body = await body_of(request, AssignBody)
        return await self._reassign(request, body.app_name, (), [CardBody(request.path_params["id"])])

    async def bulk(self, request: Request) -> Response:
        body = await body_of(request, BulkAssignBody)
        check_count(body.assign, "assign")
        check_count(body.unassign, "unassign")
        return await self._reassign(request, body.app_name, body.assign or (), body.unassign or ())

    async def _reassign(
        self, request: Request, app: str, assign: Iterable[CardBody], unassign: Iterable[CardBody]
    ) -> Response:
        cards = [(check_text(each.id, "id", needed=True), card_bytes(each.memory)) for each in assign]
        gone = [check_text(each.id, "id") for each in unassign]
        await self.bindings.reassign(self.caller_of(request), named(request, app), cards, gone)
        return Response()


def _cards(snapshot: BindingsSnapshot, caller: Caller) -> bytes:
    view = snapshot.view
    cards = sorted(view.cards.values(), key=lambda card: (card.id, card.node))
    seen = ((card, [row for row in view.on(card) if caller.sees(row.app)]) for card in cards)
    return msgspec.json.encode([gpu_body(card, rows, view.free_bytes(card), view.tenants) for card, rows in seen])
