"""Handlers that speak the words of the TensorFusion allocator: simulate a pod, report the books."""

from __future__ import annotations

from starlette.requests import Request

from ullage.model.error import InvalidRequest
from ullage.server.allocations import BODY_LIMIT
from ullage.server.routes import Endpoint
from ullage.server.simulation import allocation_report, simulate_schedule
from ullage.service.service import Service
from ullage.wire.allocation_report import AllocationReport
from ullage.wire.pod import DOMAIN
from ullage.wire.simulation import SimulateSchedule


class PodApi:
    """Handlers over one service. `domain` is that of the pods' annotations, as a query may say."""

    def __init__(self, service: Service) -> None:
        self._allocator = service.state.allocator

    def endpoints(self) -> list[Endpoint]:
        """Both paths of both: the predecessor's, and ours."""
        simulate, report = "where a pod would go, and why", "every card and everybody who holds some"
        return [
            *(
                Endpoint(
                    "POST", f"{root}/simulate-schedule", self.simulate, simulate, SimulateSchedule, query=("domain",)
                )
                for root in ("/api", "/v1")
            ),
            Endpoint("GET", "/api/allocation", self.report, report, AllocationReport),
            Endpoint("GET", "/v1/allocation-report", self.report, report, AllocationReport),
        ]

    async def simulate(self, request: Request) -> SimulateSchedule:
        body = await request.body()
        if len(body) > BODY_LIMIT:
            raise InvalidRequest(f"body: it is larger than {BODY_LIMIT} bytes", code="body-too-large")
        domain = request.query_params.get("domain", DOMAIN)
        return simulate_schedule(self._allocator, body, domain=domain)

    async def report(self, _: Request) -> AllocationReport:
        return allocation_report(self._allocator)
