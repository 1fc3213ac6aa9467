"""The OpenAPI document of the routes: for generated clients, and for the page `/docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ullage.model import error
from ullage.server.errors import status_of
from ullage.server.examples import EXAMPLES
from ullage.server.parameters import PATH, QUERY
from ullage.server.routes import TOTAL, Endpoint, kinds_of
from ullage.wire.schema import ErrorBody

TAGS = {
    "server": "The server: its state, its events, and its end.",
    "applications": "Applications: what an executor runs, such as Python functions, programs, or a worker of yours.",
    "queues": "Queues: the tree between whose members the machine is shared fairly.",
    "nodes": "Nodes with their cards, their topology, and the worker processes on them.",
    "sessions": "Sessions: one request for executors, and the tasks that run in them.",
    "tasks": "Tasks of a session, their results and their output.",
    "history": "The past: which sessions there were, who held what, and what was used of what there was.",
    "allocations": "Cards held for work that runs elsewhere: place, change, free, and plan.",
    "quotas": "Limits of what a namespace may hold.",
    "gangs": "Requests that start together, or not at all.",
    "pods": "What controllers of pods ask.",
    "users": "Who asks, and the tokens of users.",
}
"""The tags of operations, in their order, with descriptions."""

_ABOUT = """
Bodies are JSON; bytes in JSON are base64. With `application/msgpack` in `Content-Type` or `Accept` a body is
MessagePack, which carries bytes as they are. Times are seconds since the epoch, amounts are in the unit of their
name. A change is answered when it is durable. Unknown fields and query parameters are refused. An error has a
stable `code` (compare it), a `message` (read it), and the `field` that it is about.
"""

_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of a user, which has a role, or that in the file `token` of the server's home, which "
        "permits everything. At the socket of the server a process of this machine needs none.",
    },
    "page": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`Page KEY`: the key of the live page, which `POST /v1/admit` returns. It permits reading.",
    },
}
_ERROR_SCHEMA = {"$ref": "#/components/schemas/ErrorBody"}
_READS = "GET"
_UPGRADED = 101
_STREAM = "text/event-stream"
_TOTAL_HEADER = {
    TOTAL: {
        "description": "The number of items that match the query, on all pages.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_ERRORS = {
    400: "The request is wrong; the message names the field, the value and the fix.",
    401: "The token is missing or wrong.",
    403: "The host, the origin or the caller is not permitted.",
    404: "Something that the request names does not exist.",
    409: "The present state refuses the request; nothing was changed.",
    500: "The server failed; its log says why.",
    503: "The server cannot answer now; repeat the request.",
    507: "The disk of the server is full: no change is accepted until it has room.",
}
_GUARD_CODES = {
    401: {"unauthorized", "token-expired"},
    403: {"wrong-host", "wrong-origin", "no-role", "role-needed", "not-the-owner"},
    500: {"internal"},
}


def openapi(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes, with schemas from the body types."""
    endpoints = list(endpoints)
    kinds = [kind for endpoint in endpoints for kind in _kinds(endpoint)]
    schemas, components = msgspec.json.schema_components(
        [*kinds, ErrorBody], ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(map(repr, kinds), schemas, strict=False))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    for schema in components.values():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    used = {endpoint.tag for endpoint in endpoints}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ullage",
            "version": version,
            "summary": "Places work on GPUs: fairly, tightly, close together, and says why.",
            "description": " ".join(_ABOUT.split()),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that this document comes from."}],
        "security": [{"token": []}],
        "tags": [{"name": tag, "description": text} for tag, text in TAGS.items() if tag in used],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": _SCHEMES,
            "responses": {str(status): _error(status, text) for status, text in _ERRORS.items()},
        },
    }


def _kinds(endpoint: Endpoint) -> Iterator[Any]:
    """Yield the types of an endpoint that have a schema."""
    for kind in (*kinds_of(endpoint.body), endpoint.answer, *(kind for _, kind in endpoint.others)):
        if kind not in (None, type(None)):
            yield kind


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": f"{endpoint.description} Needs the role {endpoint.access.role}.",
        "x-role": endpoint.access.role,
        "parameters": [
            *(PATH[name].document(name, "path") for name in re.findall(r"{(\w+)}", endpoint.path)),
            *(QUERY[name].document(name, "query") for name in endpoint.query),
        ],
        "responses": _errors(endpoint) | _answers(endpoint, schema_of),
    }
    if endpoint.method == _READS:
        operation["security"] = [{"token": []}, {"page": []}]
    if endpoint.body is not None:
        body, *none = kinds_of(endpoint.body)
        content = {"schema": schema_of[repr(body)]}
        if endpoint.id in EXAMPLES:
            content["examples"] = EXAMPLES[endpoint.id]
        operation["requestBody"] = {"required": not none, "content": {"application/json": content}}
    return operation


def _answers(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    """Return the usual response and the others that the endpoint declares."""
    if endpoint.status == _UPGRADED:
        return {str(_UPGRADED): {"description": "The connection is a stream of frames from here on."}}
    if endpoint.raw:
        stream = {"description": endpoint.description, "content": {_STREAM: {"schema": {"type": "string"}}}}
        return {str(endpoint.status): stream}
    if endpoint.answer is None:
        return {"204": {"description": "Done; the response has no body."}}
    answers: dict[str, Any] = {}
    for status, kind in ((endpoint.status, endpoint.answer), *endpoint.others):
        schema = schema_of[repr(kind)]
        if status in _ERRORS:
            schema = {"anyOf": [schema, _ERROR_SCHEMA]}
        text = _about(kind)
        answers[str(status)] = {"description": text, "content": {"application/json": {"schema": schema}}}
    if "offset" in endpoint.query:
        answers[str(endpoint.status)]["headers"] = _TOTAL_HEADER
    return answers


def _about(kind: Any) -> str:
    """Return what a response has: the docstring of its type, or that of its items."""
    shown, *_ = getattr(kind, "__args__", (kind,))
    if not issubclass(shown, msgspec.Struct):
        return "A list of names."
    text = " ".join(inspect.cleandoc(shown.__doc__ or shown.__name__).split())
    return f"A list. Each item: {text}" if getattr(kind, "__args__", None) else text


def _errors(endpoint: Endpoint) -> dict[str, Any]:
    """Return references to the errors that an operation may answer with."""
    changes = endpoint.method != _READS
    statuses = [400, 401, 403, 500, 503]
    if "{" in endpoint.path or endpoint.body is not None:
        statuses.append(404)
    if changes:
        statuses += [409, 507]
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def _error(status: int, text: str) -> dict[str, Any]:
    """Return the response of a status, with an example of each general code."""
    examples = {code: {"value": {"code": code, "message": "...", "field": None}} for code in sorted(_codes(status))}
    return {
        "description": text,
        "content": {"application/json": {"schema": _ERROR_SCHEMA, "examples": examples}},
    }


def _codes(status: int) -> set[str]:
    """Return the general codes of a status; the reference of the HTTP API has the special ones."""
    kinds = (kind for kind in vars(error).values() if isinstance(kind, type) and issubclass(kind, error.UllageError))
    return {kind.code for kind in kinds if kind is not error.UllageError and status_of(kind("")) == status} | (
        _GUARD_CODES.get(status, set())
    )
