"""Handlers of quotas."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest

from ullage.core.quota import QuotaStatus
from ullage.core.sentences import condition_text
from ullage.model.error import invalid
from ullage.model.name import check_name
from ullage.model.quota import RESOURCES, Caps, Quota
from ullage.server import bodies
from ullage.server.allocations import BODY_LIMIT, amounts_of, amounts_or_none
from ullage.server.durable import durable
from ullage.server.routes import Endpoint
from ullage.service.service import Service
from ullage.wire import allocation as wire


class QuotaApi:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._quotas = service.quotas

    def endpoints(self) -> list[Endpoint]:
        """Every route of quotas."""
        q = "/v1/quotas"
        return [
            Endpoint("GET", q, self.all, "quotas and how they stand", list[wire.QuotaBody]),
            Endpoint("GET", f"{q}/{{namespace}}", self.get, "one quota", wire.QuotaBody),
            Endpoint("PUT", f"{q}/{{namespace}}", self.put, "create or replace a quota", wire.QuotaBody, wire.PutQuota),
            Endpoint("DELETE", f"{q}/{{namespace}}", self.drop, "remove a quota"),
        ]

    async def all(self, _: HttpRequest) -> list[wire.QuotaBody]:
        return [self._body(namespace) for namespace in self._quotas.names()]

    async def get(self, request: HttpRequest) -> wire.QuotaBody:
        return self._body(_namespace(request))

    async def put(self, request: HttpRequest) -> wire.QuotaBody:
        body = await bodies.read_body(request, wire.PutQuota, BODY_LIMIT)
        namespace, quota = _namespace(request), _quota(body)
        return _quota_body(namespace, quota, await durable(self._quotas.put, namespace, quota))

    async def drop(self, request: HttpRequest) -> None:
        await durable(self._quotas.drop, _namespace(request))

    def _body(self, namespace: str) -> wire.QuotaBody:
        return _quota_body(namespace, self._quotas.get(namespace), self._quotas.status(namespace))


def _caps(field: str, part: wire.PartMap) -> Caps:
    if part.percent is not None:
        raise invalid(f"{field}.percent", part.percent, "a quota counts tflops and vram; give those")
    amounts = amounts_of(field, part)
    return Caps(
        None if part.tflops is None else amounts.compute_gflops, None if part.vram is None else amounts.vram_bytes
    )


def _quota(body: wire.PutQuota) -> Quota:
    return Quota(
        total_requests=_caps("total_requests", body.total_requests),
        total_limits=_caps("total_limits", body.total_limits),
        max_workers=body.max_workers,
        max_requests=_caps("max_requests", body.max_requests),
        max_limits=_caps("max_limits", body.max_limits),
        max_gpu_count=body.max_gpu_count,
        default_requests=amounts_or_none("default_requests", body.default_requests),
        default_limits=amounts_or_none("default_limits", body.default_limits),
        alert_threshold_percent=body.alert_threshold_percent,
    )


def _quota_body(namespace: str, quota: Quota, status: QuotaStatus) -> wire.QuotaBody:
    return wire.QuotaBody(
        namespace=namespace,
        caps=dict(zip(RESOURCES, quota.total, strict=True)),
        used=dict(zip(RESOURCES, status.used, strict=True)),
        available_percent=dict(zip(RESOURCES, status.available_percent, strict=True)),
        ready=status.condition.ready,
        reason=status.condition.reason,
        message=condition_text(status.condition),
    )


def _namespace(request: HttpRequest) -> str:
    return check_name("namespace", request.path_params["namespace"])
