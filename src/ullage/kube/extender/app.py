"""The scheduler extender over HTTP: `POST /filter`, `/prioritize`, `/preempt` and `/bind`, and health endpoints.

kube-scheduler treats every status except 200 as a broken connection. So errors are reported in a normal response. A
request without a body is the exception: it has no normal response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ullage.kube.answering import Meter, health_routes, no_meter
from ullage.kube.body import read_body
from ullage.kube.extender.extender import Extender
from ullage.model.error import UllageError
from ullage.wire.extender import (
    MAX_BODY,
    BindResult,
    EmptyBody,
    FilterResult,
    PreemptionResult,
    encode_scores,
    read_args,
    read_bind,
    read_preemption,
)

Answer = Callable[[bytes], Awaitable[bytes]]
ErrorBody = Callable[[UllageError], bytes]


def make_app(extender: Extender, *, most: int = MAX_BODY, meter: Meter = no_meter) -> Starlette:
    """Return the application. It accepts bodies of up to `most` bytes."""
    verbs = _Verbs(extender, most)

    def route(verb: str, answer: Answer, error_body: ErrorBody) -> Route:
        async def respond(request: Request) -> Response:
            began, outcome = perf_counter(), "ok"
            try:
                found = await answer(await read_body(request, most))
            except UllageError as error:
                outcome = error.code
                if isinstance(error, EmptyBody):
                    return PlainTextResponse(error.message, 400)
                found = error_body(error)
            finally:
                meter(verb, perf_counter() - began, outcome)
            return Response(found, media_type="application/json")

        return Route(f"/{verb}", respond, methods=["POST"])

    return Starlette(
        routes=[
            route("filter", verbs.filter, lambda error: FilterResult(error=_text(error)).encode()),
            # On an error the scheduler decides without this extender, and no pod is evicted.
            route("prioritize", verbs.prioritize, lambda _: encode_scores({})),
            route("preempt", verbs.preempt, lambda _: PreemptionResult().encode()),
            route("bind", verbs.bind, lambda error: BindResult(_text(error)).encode()),
            *health_routes(lambda: extender.unready),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Verbs:
    extender: Extender
    most: int

    async def filter(self, body: bytes) -> bytes:
        return self.extender.filter(read_args(body, most=self.most)).encode()

    async def prioritize(self, body: bytes) -> bytes:
        return encode_scores(self.extender.prioritize(read_args(body, most=self.most)))

    async def preempt(self, body: bytes) -> bytes:
        return (await self.extender.preempt(read_preemption(body, most=self.most))).encode()

    async def bind(self, body: bytes) -> bytes:
        await self.extender.bind(read_bind(body, most=self.most))
        return BindResult().encode()


def _text(error: UllageError) -> str:
    return f"{error.code}: {error.message}"
