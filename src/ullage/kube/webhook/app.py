"""The webhook over HTTP: `POST /webhook` (and `/mutate`) returns a patch, `/validate` only validates.

It has a port of its own: an API server presents no client certificate by default, but clients that bind pods must.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ullage.kube.answering import Meter, health_routes, no_meter
from ullage.kube.body import read_body
from ullage.kube.webhook.webhook import Webhook
from ullage.model.error import InvalidRequest
from ullage.wire.admission import MAX_BODY, read_review

Handler = Callable[[Request], Awaitable[Response]]


def make_webhook_app(
    webhook: Webhook, *, most: int = MAX_BODY, meter: Meter = no_meter, unready: Callable[[], str] = lambda: ""
) -> Starlette:
    """Return the application. Bodies have up to `most` bytes. A review without a uid gets HTTP 400."""

    def judged(*, change: bool) -> Handler:
        async def respond(request: Request) -> Response:
            began = perf_counter()
            try:
                review = read_review(await read_body(request, most), most=most)
            except InvalidRequest as error:
                meter("webhook", perf_counter() - began, error.code)
                return PlainTextResponse(error.message, 400)
            answer, outcome = webhook.answer(review, change=change)
            meter("webhook", perf_counter() - began, outcome)
            return Response(answer, media_type="application/json")

        return respond

    return Starlette(
        routes=[
            Route("/webhook", judged(change=True), methods=["POST"]),
            Route("/mutate", judged(change=True), methods=["POST"]),
            Route("/validate", judged(change=False), methods=["POST"]),
            *health_routes(unready),
        ]
    )
