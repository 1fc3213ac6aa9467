"""Every GET of the API of a service in a lab, and what of the answers a restart may change."""

from __future__ import annotations

import asyncio
import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from tests.lab import Lab

from ullage.server.app import make_app
from ullage.wire.overview import ServerBody

TOKEN = "t" * 64
SERVER = ServerBody(version="1", epoch=1, started_at=0.0, home="", storage="", isolation="", policy={})

STREAMS = frozenset({"/v1/live", "/v1/sessions/{session}/log", "/v1/sessions/{session}/tasks/{task}/log"})
"""They do not end. What a task printed is in files."""

_OF_SESSIONS = frozenset(
    {"pending", "running", "running_since", "activity", "held", "deserved", "share", "reason", "message"}
)
_OF_TASKS = frozenset({"state", "executor", "started_at"})
_OF_REASONS = frozenset({"code", "cure", "summary", "want", "held", "deserved", "share", "position", "rejections"})

MAY_CHANGE: dict[str, frozenset[str]] = {
    # Executors end with the server, and others start: who holds what, and what follows from it.
    "/v1/executors": frozenset({"*"}),
    "/v1/nodes": frozenset({"executors", "held"}),
    "/v1/queues": frozenset({"held", "share", "pending", "running"}),
    "/v1/sessions": _OF_SESSIONS,
    "/v1/sessions/{session}": _OF_SESSIONS,
    "/v1/sessions/{session}/details": _OF_SESSIONS,
    "/v1/sessions/{session}/tasks": _OF_TASKS,
    "/v1/sessions/{session}/tasks/{task}": _OF_TASKS,
    "/v1/sessions/{session}/tasks/{task}/details": _OF_TASKS,
    "/v1/sessions/{session}/why": _OF_REASONS | {"holders", "suggestions", "warnings", "tasks"},
    # Stays of executors end with the server, and others begin. Estimates are of now.
    "/v1/history": frozenset({"started_at", "state", "waited_s", "ran_s", "core_s", "card_s", "memory_peak_bytes"}),
    "/v1/history/stays": frozenset({"*"}),
    "/v1/fair-share": frozenset({"at"}),
    "/v1/usage": frozenset({"since", "until", "at", "rows", "offered"}),
    "/v1/starts": frozenset({"*"}),
    "/v1/sessions/{session}/start": frozenset({"*"}),
    # Here also what is learned: it is learned again from what is recorded.
    "/v1/overview": _OF_SESSIONS | {"at", "executors", "tasks", "missing", "fragments_milli"},
    # A request could not be asked for again while the server was away.
    "/v1/nominations": frozenset({"since"}),
    # Of the figures; an alert is as old as before.
    "/v1/quotas": frozenset({"last_update"}),
    "/v1/quotas/{namespace}": frozenset({"last_update"}),
}
"""Fields by route, at any depth; `*` is all of the answer. A restart also adds events."""

EXECUTOR = re.compile(r"e\d+-\d+")
"""The names of executors. Reports of what is held have them too, as keys or as the uid of an entry."""

_DESCRIBED: dict[str, Any] = {}
"""The methods of each path."""

Answers = dict[tuple[str, str], Any]
"""By route and path."""


def answers(lab: Lab) -> Answers:
    """Return the answer of every GET that the API describes, for everything that there is."""
    app = make_app(lab.service, SERVER, {}, TOKEN, {"localhost"}, Path("/nowhere"), lambda: None)
    return asyncio.run(_answers(app))


def lasting(found: Answers) -> Answers:
    """Return what a restart must not change."""
    return {
        (route, path): without(answer, MAY_CHANGE.get(route, frozenset())) for (route, path), answer in found.items()
    }


def without(answer: Any, fields: frozenset[str]) -> Any:
    """Return an answer without these fields at any depth, and without what has the name of an executor."""
    if "*" in fields:
        return None
    if isinstance(answer, list):
        return [without(each, fields) for each in answer if not _of_executor(each)]
    if isinstance(answer, dict):
        gone = {name for name in answer if name in fields or EXECUTOR.fullmatch(name)}
        return {name: without(value, fields) for name, value in answer.items() if name not in gone}
    return answer


def _of_executor(entry: Any) -> bool:
    return isinstance(entry, dict) and EXECUTOR.fullmatch(entry.get("uid") or "") is not None


async def _answers(app: Starlette) -> Answers:
    if not _DESCRIBED:  # it is the same of every service, and takes its time
        _DESCRIBED.update((await _get(app, "/v1/openapi.json"))["paths"])
    routes = sorted(path for path, methods in _DESCRIBED.items() if "get" in methods and path not in STREAMS)
    found: Answers = {(route, route): await _get(app, route) for route in routes if "{" not in route}
    names = {
        "session": [each["id"] for each in found["/v1/sessions", "/v1/sessions"]],
        "node": [each["name"] for each in found["/v1/nodes", "/v1/nodes"]],
        "namespace": [each["namespace"] for each in found["/v1/quotas", "/v1/quotas"]],
        "uid": [each["uid"] for each in found["/v1/allocations", "/v1/allocations"]],
        "key": ["g0", "g1"],
        "task": ["1", "2", "3"],
    }
    for route in routes:
        fields = re.findall(r"{(\w+)}", route)
        if fields:
            own = names | {"name": names["node"] if route.startswith("/v1/nodes") else ["function", "app"]}
            for values in product(*(own[field] for field in fields)):
                path = route.format(**dict(zip(fields, values, strict=True)))
                found[route, path] = await _get(app, path)
    return found


async def _get(app: Starlette, path: str) -> Any:
    """Return the decoded body, of an error too."""
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    body = bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return msgspec.json.decode(bytes(body))
