"""A server that several people use, and what each role may do by each route and each verb.

The tables state it apart from the code: a new route or verb fails its test until it has an entry here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.system.live_server import LiveServer

SETTINGS = """
[node]
gpus = 4
[users]
default = "user"
[queues.closed]
[queues.below]
parent = "closed"
[users.queues.closed]
users = ["ann"]
"""

CALLERS = ("nobody", "vera", "bob", "ann", "olga", "root")
"""Without a token, a viewer, a user, the user who owns all, an operator, and the holder of the token file."""

RANKS = {"nobody": -1, "vera": 0, "bob": 1, "ann": 1, "olga": 2, "root": 3}

VIEWER, USER, OPERATOR, ADMIN = range(4)
OWN = "own"
SHOWN = "shown"

OPEN = {"/healthz", "/readyz", "/", "/docs", "/enter", "/favicon.ico", "/static/{name:path}"}
"""Paths that everyone may read: they contain no data of the server."""

ROUTES: dict[str, tuple[int, str]] = {
    "GET /metrics": (VIEWER, ""),
    "GET /v1/openapi.json": (VIEWER, ""),
    "POST /v1/admit": (VIEWER, ""),
    "GET /v1/me": (VIEWER, ""),
    "POST /v1/me/link": (VIEWER, ""),
    "GET /v1/tokens": (ADMIN, ""),
    "POST /v1/tokens": (ADMIN, ""),
    "DELETE /v1/tokens/{token}": (ADMIN, ""),
    "GET /v1/server": (VIEWER, ""),
    "POST /v1/shutdown": (ADMIN, ""),
    "GET /v1/overview": (VIEWER, ""),
    "GET /v1/live": (VIEWER, ""),
    "GET /v1/events": (VIEWER, ""),
    "GET /v1/applications": (VIEWER, ""),
    "GET /v1/applications/{name}": (VIEWER, ""),
    "PUT /v1/applications/{name}": (OPERATOR, ""),
    "DELETE /v1/applications/{name}": (OPERATOR, ""),
    "GET /v1/queues": (VIEWER, ""),
    "PUT /v1/queues/{name}": (OPERATOR, ""),
    "DELETE /v1/queues/{name}": (OPERATOR, ""),
    "GET /v1/nodes": (VIEWER, ""),
    "GET /v1/nodes/{name}/topology": (VIEWER, ""),
    "POST /v1/nodes/{name}/cordon": (OPERATOR, ""),
    "POST /v1/nodes/{name}/uncordon": (OPERATOR, ""),
    "GET /v1/nodes/{node}/capacity": (VIEWER, ""),
    "GET /v1/unused-nodes": (VIEWER, ""),
    "GET /v1/gpus": (VIEWER, ""),
    "GET /v1/load": (VIEWER, ""),
    "GET /v1/executors": (VIEWER, ""),
    "GET /v1/sessions": (VIEWER, ""),
    "GET /v1/sessions/{session}": (VIEWER, SHOWN),
    "POST /v1/sessions": (USER, ""),
    "POST /v1/sessions/{session}/open": (USER, OWN),
    "PATCH /v1/sessions/{session}": (USER, OWN),
    "POST /v1/sessions/{session}/close": (USER, OWN),
    "POST /v1/sessions/{session}/cancel": (USER, OWN),
    "POST /v1/sessions/{session}/clear-failures": (USER, OWN),
    "POST /v1/sessions/{session}/requeue": (USER, OWN),
    "DELETE /v1/sessions/{session}": (USER, OWN),
    "GET /v1/sessions/{session}/why": (VIEWER, SHOWN),
    "GET /v1/sessions/{session}/details": (USER, OWN),
    "GET /v1/sessions/{session}/tasks/{task}/details": (USER, OWN),
    "POST /v1/sessions/{session}/tasks": (USER, OWN),
    "GET /v1/sessions/{session}/tasks": (VIEWER, SHOWN),
    "GET /v1/sessions/{session}/tasks/{task}": (VIEWER, SHOWN),
    "POST /v1/sessions/{session}/tasks/{task}/cancel": (USER, OWN),
    "POST /v1/sessions/{session}/tasks/cancel": (USER, OWN),
    "GET /v1/sessions/{session}/tasks/{task}/log": (USER, OWN),
    "POST /v1/sessions/{session}/tasks/{task}/exec": (USER, OWN),
    "POST /v1/sessions/{session}/tasks/{task}/attach": (USER, OWN),
    "GET /v1/sessions/{session}/results": (USER, OWN),
    "GET /v1/sessions/{session}/log": (USER, OWN),
    "GET /v1/allocations": (VIEWER, ""),
    "POST /v1/allocations": (USER, ""),
    "GET /v1/allocations/{uid}": (VIEWER, SHOWN),
    "DELETE /v1/allocations/{uid}": (USER, OWN),
    "POST /v1/allocations/{uid}/commit": (USER, OWN),
    "POST /v1/allocations/{uid}/forget": (USER, OWN),
    "POST /v1/allocations/{uid}/release": (USER, OWN),
    "POST /v1/allocations/{uid}/adjust": (USER, OWN),
    "GET /v1/nominations": (VIEWER, ""),
    "GET /v1/plan": (VIEWER, ""),
    "POST /v1/plan": (VIEWER, ""),
    "POST /v1/room": (OPERATOR, ""),
    "PUT /v1/gangs/{key}": (USER, OWN),
    "GET /v1/gangs/{key}": (VIEWER, SHOWN),
    "DELETE /v1/gangs/{key}": (USER, OWN),
    "GET /v1/quotas": (VIEWER, ""),
    "GET /v1/quotas/{namespace}": (VIEWER, ""),
    "PUT /v1/quotas/{namespace}": (OPERATOR, ""),
    "DELETE /v1/quotas/{namespace}": (OPERATOR, ""),
    "POST /v1/simulate-schedule": (VIEWER, ""),
    "GET /v1/history": (VIEWER, ""),
    "GET /v1/history/stays": (VIEWER, ""),
    "POST /v1/sessions/delete-closed": (USER, ""),
    "GET /v1/sessions/{session}/start": (VIEWER, SHOWN),
    "GET /v1/starts": (VIEWER, ""),
    "GET /v1/usage": (VIEWER, ""),
    "GET /v1/fair-share": (VIEWER, ""),
    "POST /api/simulate-schedule": (VIEWER, ""),
    "GET /v1/allocation-report": (VIEWER, ""),
    "GET /api/allocation": (VIEWER, ""),
    "DELETE /v1/pods/{namespace}/{pod}": (OPERATOR, ""),
}
"""The least role by route, and whether only the owner may use it (`own`), or only where others are hidden (`shown`)."""

HERE = (-1, "")
"""A verb that asks no server, or asks another program."""

VERBS: dict[str, list[tuple[str, tuple[int, str]]]] = {
    "run": [("run -q nowhere -- true", (USER, ""))],
    "submit": [("submit -q nowhere -- true", (USER, ""))],
    "logs": [("logs work", (USER, OWN))],
    "attach": [("attach work", HERE)],  # no terminal is here where tests run; the matrix of routes has it
    "exec": [("exec work -- true", (USER, OWN))],
    "queue": [("queue", (VIEWER, "")), ("queue --start", (VIEWER, ""))],
    "sessions": [("sessions", (VIEWER, ""))],
    "tasks": [("tasks work", (VIEWER, ""))],
    "why": [("why work", (VIEWER, ""))],
    "plan": [("plan -r gpu=1", (VIEWER, ""))],
    "cancel": [("cancel work", (USER, OWN)), ("cancel work/1", (USER, OWN))],
    "close": [("close work", (USER, OWN))],
    "delete": [("delete work", (USER, OWN)), ("delete --closed --dry-run", (USER, ""))],
    "history": [("history", (VIEWER, ""))],
    "usage": [("usage", (VIEWER, "")), ("usage --fair-share", (VIEWER, ""))],
    "update": [("update work --priority 1", (USER, OWN))],
    "requeue": [("requeue work", (USER, OWN))],
    "retry": [("retry work", (USER, OWN))],
    "apps": [
        ("apps list", (VIEWER, "")),
        ("apps register -f APPLICATION", (OPERATOR, "")),
        ("apps unregister none", (OPERATOR, "")),
    ],
    "nodes": [("nodes", (VIEWER, ""))],
    "gpus": [("gpus", (VIEWER, ""))],
    "topo": [("topo", (VIEWER, ""))],
    "executors": [("executors", (VIEWER, ""))],
    "queues": [("queues", (VIEWER, ""))],
    "show": [("show session work", (VIEWER, ""))],
    "events": [("events", (VIEWER, ""))],
    "top": [("top -o json", (VIEWER, ""))],
    "alloc": [("alloc none -r gpu=99", (USER, ""))],
    "commit": [("commit pod", (USER, OWN))],
    "forget": [("forget pod", (USER, OWN))],
    "adjust": [("adjust pod -r vram=1g --dry-run", (USER, OWN))],
    "allocations": [("allocations", (VIEWER, ""))],
    "release": [("release pod", (USER, OWN))],
    "free": [("free pod", (USER, OWN))],
    "defrag": [("defrag --for gpu=4", (OPERATOR, ""))],
    "gang": [
        ("gang submit pair w-0 w-1 -r gpu=1", (USER, OWN)),
        ("gang show pair", (VIEWER, "")),
        ("gang end pair", (USER, OWN)),
    ],
    "quotas": [
        ("quotas list", (VIEWER, "")),
        ("quotas set team --max-workers 3", (OPERATOR, "")),
        ("quotas delete team", (OPERATOR, "")),
    ],
    "whoami": [("whoami", (VIEWER, ""))],
    "token": [
        ("token list", (ADMIN, "")),
        ("token create --user eve", (ADMIN, "")),
        ("token revoke none", (ADMIN, "")),
    ],
    "cordon": [("cordon none", (OPERATOR, ""))],
    "uncordon": [("uncordon none", (OPERATOR, ""))],
    **{
        name: [(name, HERE)]
        for name in (
            "up",
            "down",
            "page",
            "doctor",
            "settings",
            "service",
            "recover",
            "kube",
            "bindings",
            "exporter",
            "demo",
            "replay",
            "completion",
        )
    },
    "version": [("version", HERE)],
}
"""By verb its command lines, each with the least role and whose objects it may name."""


class People:
    """A real server with the tokens of `CALLERS`. Ann owns the session `work`, the request `pod`, the gang `pair`."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.tokens: dict[str, str | None] = {"nobody": None, "root": server.token}
        with server.client() as admin:
            for user, role in (("vera", "viewer"), ("bob", "user"), ("ann", "user"), ("olga", "operator")):
                answer = admin.post("/v1/tokens", json={"user": user, "role": role})
                self.tokens[user] = answer.json()["token"]
        with self.client("ann") as ann:
            ann.post("/v1/sessions", json={"application": "command", "id": "work"}).raise_for_status()
            ann.post("/v1/sessions/work/tasks", json={"inputs": [""], "key": "k"}).raise_for_status()
            ann.post("/v1/allocations", json={"uid": "pod", "resreq": "gpu=1"}).raise_for_status()
            ann.put("/v1/gangs/pair", json={"members": [{"uid": "m", "resreq": "gpu=1"}]}).raise_for_status()

    def client(self, caller: str) -> httpx2.Client:
        token = self.tokens[caller]
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.Client(base_url=self.server.url, headers=headers, timeout=60, verify=False)  # no TLS


@contextmanager
def people_of_one_server(home: Path) -> Iterator[People]:
    home.mkdir()
    (home / "ullage.toml").write_text(SETTINGS)
    with LiveServer(home) as server:
        yield People(server)


def may(caller: str, needed: tuple[int, str]) -> bool:
    """Whether a caller may use what needs this role of ann's objects, where others are not hidden."""
    role, whose = needed
    return RANKS[caller] >= role and (whose != OWN or caller == "ann" or RANKS[caller] >= OPERATOR)
