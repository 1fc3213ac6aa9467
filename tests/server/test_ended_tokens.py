"""What a caller is reading ends with its token, and with its role."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import httpx2
import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.lab import Lab
from tests.server.people import People, people_of_one_server
from tests.system.live_server import wait_until
from ullage.model.identity import Role
from ullage.server.callers import PEER, Callers
from ullage.server.guard import Guard
from ullage.service.access_rules import AccessRules


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with people_of_one_server(tmp_path_factory.mktemp("people") / "home") as found:
        with found.client("root") as root:
            root.post("/v1/sessions", json={"application": "command", "id": "quiet"}).raise_for_status()
        yield found


def token_of(people: People, **more: object) -> tuple[str, dict[str, str]]:
    """Return the id of a new token of an operator, and the headers with it."""
    with people.client("root") as root:
        body = root.post("/v1/tokens", json={"user": "olga", "role": "operator", **more}).json()
    return body["id"], {"Authorization": f"Bearer {body['token']}"}


def revoke(people: People, token: str) -> None:
    with people.client("root") as root:
        root.delete(f"/v1/tokens/{token}").raise_for_status()


@pytest.mark.parametrize("path", ["/v1/live", "/v1/sessions/quiet/log?follow=1"])
def test_a_stream_ends_when_its_token_is_revoked(people: People, path: str) -> None:
    token, headers = token_of(people)
    with ExitStack() as stack:
        client = stack.enter_context(httpx2.Client(base_url=people.server.url, headers=headers, timeout=60))
        stream = stack.enter_context(client.stream("GET", path))
        pieces = stream.iter_bytes()
        assert next(pieces)
        revoke(people, token)
        for _ in pieces:  # it ends; a stream that does not would run into the time limit of the test
            pass
        refused = client.get(path)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")


def test_a_stream_ends_when_its_token_expires(people: People) -> None:
    _, headers = token_of(people, expires_s=3)
    with httpx2.Client(base_url=people.server.url, headers=headers, timeout=60) as client:
        with client.stream("GET", "/v1/live") as stream:
            assert sum(1 for _ in stream.iter_bytes()) >= 1
        refused = client.get("/v1/me")
        assert (refused.status_code, refused.json()["code"]) == (401, "token-expired")


class Rooms:
    """An application behind the guard; `between` runs between the two pieces of its response, `before` before them."""

    def __init__(
        self, before: Callable[[], object] = lambda: None, between: Callable[[], object] = lambda: None
    ) -> None:
        self._before, self._between = before, between
        self.sent: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._before()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        self._between()
        await send({"type": "http.response.body", "body": b"second", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def ask(self, callers: Callers, method: str = "GET", **scope: object) -> tuple[int, bytes]:
        """Return the status and the body of the response."""

        async def send(message: Message) -> None:
            self.sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        whole = {"type": "http", "method": method, "scheme": "http", "path": "/v1/x", "query_string": b"", **scope}
        headers = [(b"host", b"localhost"), *whole.pop("headers", [])]
        asyncio.run(Guard(self, callers, ["localhost"])({**whole, "headers": headers}, receive, send))
        start, *pieces = self.sent
        assert not pieces[-1].get("more_body"), "the response has an end"
        return start["status"], b"".join(piece["body"] for piece in pieces)


def bearer(secret: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {secret}".encode())]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as found:
        yield found


def test_nothing_is_sent_after_the_end_of_a_token(lab: Lab) -> None:
    tokens, callers = lab.service.tokens, Callers("file", lab.service)
    token, secret = tokens.create("ann", Role.USER, 60.0, "root", lambda: None)

    def expire() -> None:
        lab.now += 60

    assert Rooms().ask(callers, headers=bearer(secret)) == (200, b"firstsecond")
    assert Rooms(between=expire).ask(callers, headers=bearer(secret)) == (200, b"first")
    lab.now -= 60
    status, body = Rooms(before=lambda: tokens.revoke(token.id, "root", lambda: None)).ask(
        callers, headers=bearer(secret)
    )
    assert status == 401
    assert b"it was revoked" in body
    assert b"first" not in body


def test_a_change_is_answered_although_it_ends_the_token_of_its_caller(lab: Lab) -> None:
    tokens, callers = lab.service.tokens, Callers("file", lab.service)
    token, secret = tokens.create("ann", Role.ADMIN, None, "root", lambda: None)
    rooms = Rooms(before=lambda: tokens.revoke(token.id, "ann", lambda: None))
    assert rooms.ask(callers, "DELETE", headers=bearer(secret)) == (200, b"")


@pytest.mark.parametrize("groups", [frozenset({"staff"}), frozenset()])
def test_a_stream_ends_when_the_role_of_its_user_is_taken(lab: Lab, groups: frozenset[str]) -> None:
    users = SimpleNamespace(
        by_uid=lambda _: SimpleNamespace(name="olga"), groups_of=lambda _: users.groups, groups=frozenset({"ops"})
    )
    access = AccessRules(groups={"ops": Role.OPERATOR, "staff": Role.USER})
    callers = Callers("file", SimpleNamespace(access=access, tokens=lab.service.tokens, system_users=users))
    scope = {PEER: os.geteuid() + 1}
    assert Rooms().ask(callers, **scope) == (200, b"firstsecond")
    assert Rooms(between=lambda: setattr(users, "groups", groups)).ask(callers, **scope) == (200, b"first")


@pytest.fixture(scope="module")
def long(people: People) -> Iterator[str]:
    """A session whose program prints a line and goes on."""
    with people.client("root") as root:
        root.post("/v1/sessions", json={"application": "command", "id": "long", "resreq": "cpu=1"}).raise_for_status()
        script = msgspec.msgpack.encode({"argv": ["sh", "-c", "echo begun; sleep 600"]})
        body = msgspec.json.encode({"inputs": [script], "key": "k"})
        root.post("/v1/sessions/long/tasks", content=body).raise_for_status()
        wait_until(lambda: root.get("/v1/sessions/long").json()["running"] == 1, "the program runs")
        yield "long"
        root.post("/v1/sessions/long/cancel").raise_for_status()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (["logs", "-f", "long"], "this server knows no such token: it was revoked"),
        (["exec", "long", "--", "sh", "-c", "echo begun; sleep 599"], "your token was revoked or has expired"),
    ],
)
def test_what_a_command_follows_ends_with_the_reason(
    people: People, long: str, line: list[str], reason: str, tmp_path: Path
) -> None:
    token, headers = token_of(people)
    environment = {
        "PATH": "/usr/bin:/bin",
        "ULLAGE_HOME": str(tmp_path),
        "ULLAGE_ENDPOINT": people.server.url,
        "ULLAGE_TOKEN": headers["Authorization"].removeprefix("Bearer "),
        "PYTHONPATH": ":".join(sys.path),
    }
    follower = subprocess.Popen(
        [sys.executable, "-m", "ullage.cli.main", *line],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == "begun\n"
    revoke(people, token)
    _, error = follower.communicate(timeout=120)
    assert follower.returncode != 0
    assert reason in error
    with people.client("root") as root:
        assert root.get(f"/v1/sessions/{long}").json()["running"] == 1, "its program goes on"
