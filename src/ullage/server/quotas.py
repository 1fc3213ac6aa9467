"""Handlers of quotas."""

from __future__ import annotations

import re

from starlette.requests import Request as HttpRequest

from ullage.core.books.usage import Usage
from ullage.core.verdict.quota import QuotaStatus
from ullage.core.verdict.sentences import condition_text
from ullage.model.error import InvalidRequest, invalid
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.model.quantity import check_size
from ullage.model.quota import RESOURCES, Caps, Quota
from ullage.model.resources import show_milli
from ullage.server import bodies
from ullage.server.access import needs
from ullage.server.allocations import BODY_LIMIT, amounts_of, amounts_or_none, part_map
from ullage.server.durable import durable
from ullage.server.routes import route
from ullage.service.service import UllageService
from ullage.wire import allocation as wire
from ullage.wire.body import body_of

_SHOWN = RESOURCES[:-1]
"""The caps of quotas of this API: `cores` are for ResourceQuotas of Kubernetes alone."""


class QuotaApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService) -> None:
        self._quotas = service.quotas

    @route("GET", "/v1/quotas", "quotas")
    @needs(Role.VIEWER)
    async def list_quotas(self, _: HttpRequest) -> list[wire.QuotaBody]:
        """Return all quotas with their usage."""
        return [self._body(namespace) for namespace in self._quotas.names()]

    @route("GET", "/v1/quotas/{namespace}", "quotas")
    @needs(Role.VIEWER)
    async def get_quota(self, request: HttpRequest) -> wire.QuotaBody:
        """Return the quota of a namespace with its usage."""
        return self._body(_namespace(request))

    @route("PUT", "/v1/quotas/{namespace}", "quotas", body=wire.PutQuotaBody)
    @needs(Role.OPERATOR)
    async def put_quota(self, request: HttpRequest) -> wire.QuotaBody:
        """Create or replace the quota of a namespace."""
        body = await bodies.read_body(request, wire.PutQuotaBody, BODY_LIMIT)
        namespace, quota = _namespace(request), _quota(body)
        await durable(self._quotas.put, namespace, quota)
        return self._body(namespace)

    @route("DELETE", "/v1/quotas/{namespace}", "quotas")
    @needs(Role.OPERATOR)
    async def delete_quota(self, request: HttpRequest) -> None:
        """Remove the quota of a namespace."""
        await durable(self._quotas.drop, _namespace(request))

    def _body(self, namespace: str) -> wire.QuotaBody:
        quotas = self._quotas
        return _quota_body(namespace, quotas.get(namespace), quotas.status(namespace), quotas.assumed(namespace))


def _caps(field: str, part: wire.PartMap) -> Caps:
    if part.percent is not None:
        raise invalid(f"{field}.percent", part.percent, "a quota counts tflops and vram; give those")
    amounts = amounts_of(field, part)
    check_size(f"{field}.vram", amounts.vram_bytes, part.vram)
    return Caps(
        None if part.tflops is None else amounts.compute_gflops, None if part.vram is None else amounts.vram_bytes
    )


def _quota(body: wire.PutQuotaBody) -> Quota:
    total, single = body.total, body.single
    try:
        return Quota(
            total_requests=_caps("total.requests", total.requests),
            total_limits=_caps("total.limits", total.limits),
            max_workers=total.max_workers,
            max_requests=_caps("single.max_requests", single.max_requests),
            max_limits=_caps("single.max_limits", single.max_limits),
            max_gpu_count=single.max_gpu_count,
            default_requests=amounts_or_none("single.default_requests", single.default_requests),
            default_limits=amounts_or_none("single.default_limits", single.default_limits),
            alert_threshold_percent=body.alert_threshold_percent,
        )
    except InvalidRequest as error:
        raise InvalidRequest(_as_sent(error.message), field=_as_sent(error.field or "")) from None


def _as_sent(text: str) -> str:
    """Return a message with the names and units of the body of a quota."""
    text = re.sub(
        r"(?<=compute_gflops: )\d+|(?<=compute_gflops \()\d+", lambda found: show_milli(int(found.group())), text
    )
    text = text.replace("compute_gflops", "tflops").replace("vram_bytes", "vram")
    text = re.sub(r"\btotal_(requests|limits)\b", r"total.\1", text)
    text = re.sub(r"(?<![.\w])max_workers\b", "total.max_workers", text)
    return re.sub(
        r"(?<![.\w])(max_requests|max_limits|max_gpu_count|default_requests|default_limits)\b", r"single.\1", text
    )


def _quota_body(namespace: str, quota: Quota, status: QuotaStatus, assumed: Usage) -> wire.QuotaBody:
    return body_of(
        wire.QuotaBody,
        status.condition,
        quota,
        namespace=namespace,
        total=body_of(wire.QuotaTotal, quota, requests=_part(quota.total_requests), limits=_part(quota.total_limits)),
        single=body_of(
            wire.QuotaSingle,
            quota,
            max_requests=_part(quota.max_requests),
            max_limits=_part(quota.max_limits),
            default_requests=None if quota.default_requests is None else part_map(quota.default_requests),
            default_limits=None if quota.default_limits is None else part_map(quota.default_limits),
        ),
        used=_use(status.used),
        assumed=_use(assumed),
        available_percent=dict(zip(_SHOWN, status.available_percent, strict=False)),
        message=condition_text(status.condition),
        last_update=status.last_update,
    )


def _part(caps: Caps) -> wire.PartMap:
    """Return caps in the form of a request: TFLOPS as exact text, vram in bytes; None without a cap."""
    tflops = None if caps.compute_gflops is None else show_milli(caps.compute_gflops)
    return wire.PartMap(tflops=tflops, vram=caps.vram_bytes)


def _use(usage: Usage) -> wire.QuotaUse:
    return wire.QuotaUse(
        requests=_part(Caps(usage.compute_request, usage.vram_request)),
        limits=_part(Caps(usage.compute_limit, usage.vram_limit)),
        workers=usage.workers,
    )


def _namespace(request: HttpRequest) -> str:
    return check_name("namespace", request.path_params["namespace"])
