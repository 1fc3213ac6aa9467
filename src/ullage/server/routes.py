"""Routes, declared at their handlers. They define the application and its OpenAPI document.

The docstring of a handler describes its route; its return annotation is the schema of the answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.server.bodies import MSGPACK
from ullage.server.parameters import PATH, QUERY, check_query
from ullage.service.pages import written
from ullage.wire.schema import ErrorBody

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

_Body = TypeVar("_Body")
LongBody: TypeAlias = Callable[[], _Body]
"""A body that takes long to write: a function that a thread calls. It reads only immutable values or copies."""

_OURS = "/v1/"
"""The prefix of our routes. Other routes serve clients of other products, and accept their bodies."""

TOTAL = "X-Total-Count"
"""The header of each route that reads `offset`: how many items match, on all pages."""

_TOTAL = "the number of items that match the query, on all pages"

_DECLARED = "_routes"
"""The attribute of a handler with its endpoints."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with another status than the usual one of its route, or with headers."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route and the handler that responds to it; `id` names it for generated clients, `tag` groups it.

    `body` is the schema of the request. `others` are the statuses, each with its schema, that an `Answer` of the
    handler may have. `query` names the query parameters.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    tag: str
    id: str
    body: Any = None
    status: int = 200
    query: tuple[str, ...] = ()
    others: tuple[tuple[int, Any], ...] = ()

    @property
    def description(self) -> str:
        """The docstring of the handler, without the errors that it raises."""
        text, _, _ = inspect.cleandoc(self.handler.__doc__ or "").partition("\n\nRaises:")
        return " ".join(text.split())

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return re.split(r"(?<=[.;:]) ", self.description, maxsplit=1)[0].rstrip(".;:")

    @property
    def answer(self) -> Any:
        """The schema of the usual answer; None is 204 without a body."""
        found = get_type_hints(self.handler)["return"]
        kinds = [kind for kind in (get_args(found) if _is_union(found) else (found,)) if kind is not Answer]
        if self.raw or kinds == [type(None)]:
            return None
        kind, *_ = kinds
        return get_args(kind)[-1] if get_origin(kind) is get_origin(LongBody) else kind

    @property
    def raw(self) -> bool:
        """Whether the handler builds its own response (streams)."""
        found = get_type_hints(self.handler)["return"]
        return isinstance(found, type) and issubclass(found, Response)

    def route(self, handlers: object) -> Route:
        """Return the route for Starlette; `handlers` has the handler as a method."""
        handler, raw, ours = self.handler.__get__(handlers), self.raw, self.path.startswith(_OURS)

        async def respond(request: Request) -> Response:
            if ours:
                check_query(request, self.query)
            answer = await handler(request)
            if raw:
                assert isinstance(answer, Response)
                return answer
            if answer is None:
                return Response(status_code=204)
            given = answer if isinstance(answer, Answer) else Answer(self.status, answer)
            packed = request.headers.get("accept", "").startswith(MSGPACK)
            content = await encoded(given.body, msgspec.msgpack.encode if packed else msgspec.json.encode)
            return Response(content, given.status, given.headers, MSGPACK if packed else "application/json")

        return Route(self.path, respond, methods=[self.method], name=self.id)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


async def encoded(body: Any, encode: Callable[[Any], bytes] = msgspec.json.encode) -> bytes:
    """Return a body as bytes. A thread writes and encodes a long one."""
    return await written(lambda: encode(body())) if callable(body) else encode(body)


def route(
    method: str,
    path: str,
    tag: str,
    *,
    id: str = "",  # noqa: A002 - the name of the field of `Endpoint`
    body: Any = None,
    status: int = 200,
    query: tuple[str, ...] = (),
    others: tuple[tuple[int, Any], ...] = (),
) -> Callable[[Handler], Handler]:
    """Declare the route of a handler by the fields of its `Endpoint`. The default id is the handler's name."""

    def declare(handler: Handler) -> Handler:
        endpoint = Endpoint(
            method, path, handler, tag, id=id or handler.__name__, body=body, status=status, query=query, others=others
        )
        setattr(handler, _DECLARED, (endpoint, *getattr(handler, _DECLARED, ())))
        return handler

    return declare


def endpoints_of(*fronts: type) -> Iterator[Endpoint]:
    """Yield the endpoints that the methods of these classes declare, in their order."""
    for front in fronts:
        for handler in vars(front).values():
            yield from getattr(handler, _DECLARED, ())


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
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    error = {
        "description": "an error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    }
    status = 204 if endpoint.answer is None and not endpoint.raw else endpoint.status
    answers: dict[str, Any] = {}
    for code, kind in ((status, endpoint.answer), *endpoint.others):
        answers[str(code)] = {"description": endpoint.summary}
        if kind is not None:
            answers[str(code)]["content"] = {"application/json": {"schema": schema_of[repr(kind)]}}
    if "offset" in endpoint.query:
        answers[str(status)]["headers"] = {TOTAL: {"description": _TOTAL, "schema": {"type": "integer", "minimum": 0}}}
    operation: dict[str, Any] = {
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": endpoint.description,
        "parameters": [
            *(PATH[name].document(name, "path") for name in names),
            *(QUERY[name].document(name, "query") for name in endpoint.query),
        ],
        "responses": {**answers, "default": error},
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": schema_of[repr(endpoint.body)]}}}
    return operation
