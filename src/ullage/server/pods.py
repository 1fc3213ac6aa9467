"""Handlers about pods: simulate a pod, free its cards, report the ledger in the form that its controllers use."""

from __future__ import annotations

from starlette.requests import Request

from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.server import simulation
from ullage.server.access import Authorizer, needs
from ullage.server.allocations import BODY_LIMIT
from ullage.server.bodies import read_raw
from ullage.server.durable import durable
from ullage.server.routes import LongBody, route
from ullage.service.service import UllageService
from ullage.wire.allocation import FreedBody
from ullage.wire.allocation_report import AllocationReport
from ullage.wire.body import body_of
from ullage.wire.pod import DOMAIN
from ullage.wire.simulation import SimulateSchedule


class PodApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService) -> None:
        self._service, self._authorizer = service, Authorizer(service)

    @route("POST", "/v1/simulate-schedule", "pods", query=("domain",))
    @route("POST", "/api/simulate-schedule", "pods", id="simulate_schedule_api", query=("domain",))
    @needs(Role.VIEWER)
    async def simulate_schedule(self, request: Request) -> LongBody[SimulateSchedule]:
        """Return where a pod would be placed, with every step of the decision."""
        body = await read_raw(request, BODY_LIMIT)
        domain = request.query_params.get("domain", DOMAIN)
        return simulation.simulate_schedule(self._service.state.allocator, body, domain=domain)

    @route("DELETE", "/v1/pods/{namespace}/{pod}", "pods", query=("uid",))
    @needs(Role.OPERATOR)
    async def free_pod(self, request: Request) -> list[FreedBody]:
        """Free the cards of a pod that has ended."""
        namespace, pod = (check_name(name, request.path_params[name]) for name in ("namespace", "pod"))
        freed = await durable(self._service.allocations.free_pod, namespace, pod, request.query_params.get("uid"))
        return [body_of(FreedBody, each) for each in freed]

    @route("GET", "/v1/allocation-report", "pods")
    @route("GET", "/api/allocation", "pods", id="report_allocations_api")
    @needs(Role.VIEWER)
    async def report_allocations(self, request: Request) -> LongBody[AllocationReport]:
        """Return all cards with their holders, in the form for controllers of pods."""
        fleet = self._service.state.fleet.copy(apart=True)
        shown = self._authorizer.shown_holders(request)
        return lambda: simulation.allocation_report(fleet, shown)
