"""The table of routes, from which the application and its OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.server.bodies import MSGPACK
from ullage.server.parameters import PATH, QUERY, check_query
from ullage.service.pages import written
from ullage.wire.api import ErrorBody

Handler = Callable[[Request], Awaitable[Any]]

_Body = TypeVar("_Body")
LongBody: TypeAlias = Callable[[], _Body]
"""A body that takes long to write: a function that a thread calls. It reads only what nobody changes, or copies."""

_OURS = "/v1/"
"""The prefix of our routes; routes for clients of other products accept the bodies of those clients."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with another status than the usual one of its route."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route: `body` and `answer` are the schemas; an answer of None is 204 without a body.

    `others` are the statuses, each with its schema, that an `Answer` of the handler may have.
    `raw` handlers build their own response (streams). `query` names the query parameters.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Any = None
    body: Any = None
    status: int = 200
    query: tuple[str, ...] = ()
    raw: bool = False
    others: tuple[tuple[int, Any], ...] = ()

    def route(self) -> Route:
        """Return the route for Starlette."""
        return Route(self.path, self._respond, methods=[self.method], name=self.summary)

    async def _respond(self, request: Request) -> Response:
        if self.path.startswith(_OURS):
            check_query(request, self.query)
        answer = await self.handler(request)
        if self.raw:
            assert isinstance(answer, Response)
            return answer
        if answer is None:
            return Response(status_code=204)
        status, body = (answer.status, answer.body) if isinstance(answer, Answer) else (self.status, answer)
        packed = request.headers.get("accept", "").startswith(MSGPACK)
        content = await encoded(body, msgspec.msgpack.encode if packed else msgspec.json.encode)
        return Response(content, status, media_type=MSGPACK if packed else "application/json")


async def encoded(body: Any, encode: Callable[[Any], bytes] = msgspec.json.encode) -> bytes:
    """Return a body as bytes; a long one is written and encoded in a thread."""
    return await written(lambda: encode(body())) if callable(body) else encode(body)


def openapi(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes, with schemas from the body types."""
    endpoints = list(endpoints)
    used = ((endpoint.body, endpoint.answer, *(kind for _, kind in endpoint.others)) for endpoint in endpoints)
    kinds = [kind for group in used for kind in group if kind is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    components["ErrorBody"] = msgspec.json.schema_components([ErrorBody])[1]["ErrorBody"]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ullage", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": PATH[name]} for name in names]
    parameters += [{"name": name, "in": "query", "required": False, "schema": QUERY[name]} for name in endpoint.query]
    error = {"description": "an error", "content": {"application/json": {"schema": _reference("ErrorBody")}}}
    status = 204 if endpoint.answer is None and not endpoint.raw else endpoint.status
    answers: dict[str, Any] = {}
    for code, kind in ((status, endpoint.answer), *endpoint.others):
        answers[str(code)] = {"description": endpoint.summary}
        if kind is not None:
            answers[str(code)]["content"] = {"application/json": {"schema": schema_of[repr(kind)]}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {**answers, "default": error},
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": schema_of[repr(endpoint.body)]}}}
    return operation


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
