"""Routes, declared at their handlers. They define the application and its OpenAPI document (`openapi`).

The docstring of a handler describes its route; its return annotation is the schema of the answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.server.access import Access, access_of
from ullage.server.bodies import MSGPACK
from ullage.server.parameters import check_query
from ullage.service.pages import written

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

_Body = TypeVar("_Body")
LongBody: TypeAlias = Callable[[], _Body]
"""A body that takes long to write: a function that a thread calls. It reads only immutable values or copies."""

_OURS = "/v1/"
"""The prefix of our routes. Other routes serve clients of other products, and accept their bodies."""

TOTAL = "X-Total-Count"
"""The header of each route that reads `offset`: how many items match, on all pages."""

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

    `body` is the schema of the request; with `| None` the request may have none. `others` are other statuses that the
    response may have, each with its schema. `query` names the query parameters, `access` the role that the caller
    needs.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    tag: str
    id: str
    access: Access
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
        kinds = [kind for kind in kinds_of(found) if kind is not Answer]
        if self.raw or kinds == [type(None)]:
            return None
        kind, *_ = kinds
        return get_args(kind)[-1] if get_origin(kind) is get_origin(LongBody) else kind

    @property
    def raw(self) -> bool:
        """Whether the handler builds its own response (streams)."""
        found = get_type_hints(self.handler)["return"]
        return isinstance(found, type) and issubclass(found, Response)

    def route(self, handlers: object, check: Callable[[Request, Access], None]) -> Route:
        """Return the route for Starlette; `handlers` has the handler as a method, `check` refuses callers."""
        handler, raw, ours = self.handler.__get__(handlers), self.raw, self.path.startswith(_OURS)

        async def respond(request: Request) -> Response:
            check(request, self.access)
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


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


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
            method,
            path,
            handler,
            tag,
            id=id or handler.__name__,
            access=access_of(handler, f"{method} {path}"),
            body=body,
            status=status,
            query=query,
            others=others,
        )
        setattr(handler, _DECLARED, (endpoint, *getattr(handler, _DECLARED, ())))
        return handler

    return declare


def endpoints_of(*fronts: type) -> Iterator[Endpoint]:
    """Yield the endpoints that the methods of these classes declare, in their order."""
    for front in fronts:
        for handler in vars(front).values():
            yield from getattr(handler, _DECLARED, ())
