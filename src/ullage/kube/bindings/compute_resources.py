"""`/app-service/v1`: the cards, the applications bound to them, and what else would fit."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.binding.states import card_state, node_state, shown_rows
from ullage.kube.answering import Meter, no_meter
from ullage.kube.bindings.gpus import gpu_routes
from ullage.kube.bindings.http import (
    CallerOf,
    Handler,
    body_of,
    checked,
    failed,
    found,
    long_found,
    named,
    routes,
    terms_of,
)
from ullage.model.compute import CardKey, ComputeCard, ComputeNode
from ullage.model.compute_result import FailedCheck
from ullage.service.bindings import Bindings
from ullage.service.bindings_snapshot import BindingsSnapshot, Caller, NamedApp
from ullage.wire.compute_request import BindingBody, PreflightBody, SupportTypeBody, UpkeepBody, check_text
from ullage.wire.compute_resources import (
    ComputeDeviceBody,
    ComputeNodeBody,
    MigrationBody,
    allocation_bodies,
    device_body,
    node_body,
    preflight_result_body,
    quota_body,
    switch_body,
    validated_body,
)

ROOT = "/app-service/v1"


def compute_resources(bindings: Bindings, caller_of: CallerOf, meter: Meter = no_meter) -> Starlette:
    """Return the application, including the older `/gpus`."""
    return Starlette(routes=[*compute_routes(bindings, caller_of, meter), *gpu_routes(bindings, caller_of, meter)])


def compute_routes(bindings: Bindings, caller_of: CallerOf, meter: Meter) -> list[Route]:
    api = _Api(bindings, caller_of)
    app = f"{ROOT}/apps/{{name}}"
    bound = f"{app}/compute-resources/bindings"
    switch = f"{ROOT}/compute-resources/nodes/{{node}}/devices/{{device}}/support-type"
    rows: list[tuple[str, str, Handler]] = [
        ("GET", f"{ROOT}/compute-resources", api.resources),
        ("GET", f"{ROOT}/compute-resources/problems", api.problems),
        ("GET", f"{ROOT}/compute-resources/quotas", api.quotas),
        ("POST", f"{ROOT}/compute-resources/migrate", api.migrate),
        ("POST", f"{ROOT}/compute-resources/clean", api.clean),
        ("GET", f"{ROOT}/gpu/types", api.types),
        ("PUT", switch, api.switch),
        ("POST", f"{ROOT}/compute-resources/preflight", api.preflight),
        ("GET", bound, api.bindings_of),
        ("DELETE", bound, api.suspend),
        ("POST", f"{bound}/validate", api.validate),
        ("POST", f"{app}/resume", api.resume),
        ("POST", f"{app}/install", api.install),
        ("POST", f"{app}/uninstall", api.uninstall),
    ]
    return routes(meter, rows)


@dataclass(frozen=True, slots=True)
class _Api:
    bindings: Bindings
    caller_of: CallerOf

    async def resources(self, request: Request) -> Response:
        caller = self.caller_of(request)
        snapshot = await self.bindings.snapshot_now()
        return await long_found(
            lambda: [_node(snapshot, node, caller) for node in snapshot.nodes()],
            snapshot.ledger.version,
        )

    async def problems(self, request: Request) -> Response:
        caller = self.caller_of(request)
        snapshot = await self.bindings.snapshot_now()
        return await long_found(lambda: list(snapshot.problems(caller)))

    async def quotas(self, request: Request) -> Response:
        owner = check_text(request.query_params.get("owner", ""), "owner")
        return found([quota_body(each) for each in await self.bindings.quotas(self.caller_of(request), owner)])

    async def migrate(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, UpkeepBody)
        done = await self.bindings.migrate(caller, dry_run=body.dry_run)
        return found(MigrationBody(done.kept, done.unchanged, done.dropped, done.problems))

    async def clean(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, UpkeepBody)
        return found(await self.bindings.clean(caller, dry_run=body.dry_run))

    async def types(self, request: Request) -> Response:
        self.caller_of(request)
        snapshot = await self.bindings.snapshot_now()
        return await long_found(lambda: sorted({kind for node in snapshot.nodes() for kind in node.accelerators}))

    async def switch(self, request: Request) -> Response:
        key = CardKey(request.path_params["node"], request.path_params["device"])
        caller, asked = self.caller_of(request), await body_of(request, SupportTypeBody)
        report = await self.bindings.switch(caller, key, asked.support_type, terms_of(request))
        snapshot = await self.bindings.snapshot_now()
        device = device_of(snapshot, snapshot.card(key), caller)
        if isinstance(report, FailedCheck):
            return await failed(report, caller, device)
        return found(switch_body(report, device), snapshot.ledger.version)

    async def preflight(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, PreflightBody)
        return found(preflight_result_body(await self.bindings.preflight(caller, body.values())))

    async def bindings_of(self, request: Request) -> Response:
        return found(allocation_bodies(await self.bindings.rows(self.caller_of(request), _app(request))))

    async def suspend(self, request: Request) -> Response:
        await self.bindings.suspend(self.caller_of(request), _app(request), terms_of(request))
        return found([])

    async def validate(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, BindingBody)
        answer = await self.bindings.validate(caller, _app(request), body.picks())
        if isinstance(answer, FailedCheck):
            return await failed(answer, caller)
        return found(validated_body(answer.availability, answer.validation, answer.rows, caller.sees))

    async def resume(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, BindingBody)
        answer = await self.bindings.resume(caller, _app(request), body.picks(), terms_of(request))
        return await checked(answer, caller)

    async def install(self, request: Request) -> Response:
        caller, body = self.caller_of(request), await body_of(request, BindingBody)
        app, terms = _app(request), terms_of(request)
        return await checked(await self.bindings.install(caller, app, body.mode, body.picks(), terms=terms), caller)

    async def uninstall(self, request: Request) -> Response:
        await self.bindings.uninstall(self.caller_of(request), _app(request), terms_of(request))
        return found([])


def _app(request: Request) -> NamedApp:
    return named(request, request.path_params["name"])


def device_of(snapshot: BindingsSnapshot, card: ComputeCard, caller: Caller) -> ComputeDeviceBody:
    """Return a card with the applications that are bound to it, as far as a caller may see them."""
    rows = [row for row in shown_rows(snapshot.view, card, snapshot.stopping) if caller.sees(row.app)]
    state = card_state(snapshot.view, card, snapshot.cluster.held_cards)
    return device_body(card, snapshot.view.free_bytes(card), rows, state)


def _node(snapshot: BindingsSnapshot, node: ComputeNode, caller: Caller) -> ComputeNodeBody:
    devices = [device_of(snapshot, card, caller) for card in node.cards]
    return node_body(node, devices, node_state(node, snapshot.cluster.held_cards))
