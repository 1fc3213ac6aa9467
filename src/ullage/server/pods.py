"""Handlers about pods: simulate a pod, free its cards, report the ledger in the form that its controllers use."""

from __future__ import annotations

from starlette.requests import Request

from ullage.model.name import check_name
from ullage.server.allocations import BODY_LIMIT
from ullage.server.bodies import read_raw
from ullage.server.durable import durable
from ullage.server.routes import Endpoint
from ullage.server.simulation import allocation_report, simulate_schedule
from ullage.service.service import UllageService
from ullage.wire.allocation import FreedBody
from ullage.wire.allocation_report import AllocationReport
from ullage.wire.body import body_of
from ullage.wire.pod import DOMAIN
from ullage.wire.simulation import SimulateSchedule


class PodApi:
    """Handlers over one service. `domain` is that of the pods' annotations, unless a query names another."""

    def __init__(self, service: UllageService) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        """Return both paths of each handler: the predecessor's, and ours."""
        simulate, report = "where a pod would go, and why", "every card and everybody who holds some"
        return [
            *(
                Endpoint(
                    "POST",
                    f"{root}/simulate-schedule",
                    self.simulate,
                    simulate,
                    answer=SimulateSchedule,
                    query=("domain",),
                )
                for root in ("/api", "/v1")
            ),
            Endpoint(
                "DELETE",
                "/v1/pods/{namespace}/{pod}",
                self.free,
                "free what a pod that is gone holds",
                answer=list[FreedBody],
                query=("uid",),
            ),
            Endpoint("GET", "/api/allocation", self.report, report, answer=AllocationReport),
            Endpoint("GET", "/v1/allocation-report", self.report, report, answer=AllocationReport),
        ]

    async def simulate(self, request: Request) -> SimulateSchedule:
        body = await read_raw(request, BODY_LIMIT)
        domain = request.query_params.get("domain", DOMAIN)
        return simulate_schedule(self._service.state.allocator, body, domain=domain)

    async def free(self, request: Request) -> list[FreedBody]:
        namespace, pod = (check_name(name, request.path_params[name]) for name in ("namespace", "pod"))
        freed = await durable(self._service.allocations.free_pod, namespace, pod, request.query_params.get("uid"))
        return [body_of(FreedBody, each) for each in freed]

    async def report(self, _: Request) -> AllocationReport:
        return allocation_report(self._service.state.allocator)
