"""With `reads = "own"` no answer of any route has anything of another user's work, but for who holds cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.server.people import ROUTES
from tests.system.live_server import LiveServer, wait_until

SETTINGS = """
[node]
gpus = 4
[users]
default = "user"
reads = "own"
"""

SECRETS = ("hush", "zelda")
"""What the names of another user's objects begin with, and her name."""

EXACT = {"session": "hush-work", "uid": "hush-pod", "key": "hush-pair", "task": "1"}
NEAR = {"session": "hash-work", "uid": "hash-pod", "key": "hash-pair", "task": "1"}
"""Names that are similar to hers, so that a hint would name them; they do not exist."""
MINE = {"session": "mine", "uid": "my-pod", "key": "my-pair", "task": "1", "name": "default"}

OF_HOLDERS = {
    "GET /v1/overview",
    "GET /v1/live",
    "GET /v1/gpus",
    "GET /v1/nodes/{name}/topology",
    "GET /v1/sessions/{session}/why",
}
"""Who holds cards is shown to those who wait for them."""

LISTS = [line for line in ROUTES if "{" not in line and line != "POST /v1/shutdown"]
OF_OBJECTS = [line for line in ROUTES if re.search("{(session|uid|key)}", line)]
QUERIES = {
    "GET /v1/history": ("?since=0", "?since=0&owner=zelda"),
    "GET /v1/history/stays": ("?since=0", "?since=0&owner=zelda"),
    "GET /v1/usage": ("?since=0", "?since=0&by=owner,queue,application", "?since=0&owner=zelda"),
    "GET /v1/sessions": ("", "?owner=zelda", "?search=hus", "?state=open", "?sort=id"),
    "GET /v1/events": ("", "?after=0&limit=1000"),
    "GET /v1/plan": ("?resreq=gpu=4", "?resreq=gpu=1"),
}


class Neighbours:
    """A server where Zelda works, and Bob may read only his own."""

    def __init__(self, server: LiveServer) -> None:
        self.server, self.tokens = server, {}
        with server.client() as admin:
            for user, role in (("zelda", "user"), ("bob", "user"), ("olga", "operator"), ("vera", "viewer")):
                self.tokens[user] = admin.post("/v1/tokens", json={"user": user, "role": role}).json()["token"]
        with self.client("zelda") as zelda:
            self._work(zelda, "hush-work", "hush-pod", "hush-pair")
            post(zelda, "/v1/sessions", application="command", id="hush-old")
            post(zelda, "/v1/sessions/hush-old/close")
            post(zelda, "/v1/allocations", uid="hush-freed", resreq="gpu=0.1")
            zelda.delete("/v1/allocations/hush-freed").raise_for_status()
            post(zelda, "/v1/sessions", application="command", id="hush-deleted")
            post(zelda, "/v1/sessions/hush-deleted/close")
            zelda.delete("/v1/sessions/hush-deleted").raise_for_status()
        with self.client("bob") as bob:
            self._work(bob, "mine", "my-pod", "my-pair")
            post(bob, "/v1/sessions", application="command", id="waits", resreq="gpu=4,cpu=0")
            post(bob, "/v1/sessions/waits/tasks", inputs=[program("true")], key="k")

    def _work(self, client: httpx2.Client, session: str, pod: str, gang: str) -> None:
        post(client, "/v1/sessions", application="command", id=session, resreq="cpu=0,gpu=0.5")
        post(client, f"/v1/sessions/{session}/tasks", inputs=[program("echo begun; sleep 600")], key="k")
        post(client, "/v1/allocations", uid=pod, resreq="gpu=0.5")
        client.put(
            f"/v1/gangs/{gang}", json={"members": [{"uid": f"{gang}-0", "resreq": "gpu=0.5"}]}
        ).raise_for_status()
        running = f"/v1/sessions/{session}/tasks/1"
        wait_until(lambda: client.get(running).json()["state"] == "running", f"{session} runs")

    def client(self, user: str) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.tokens[user]}"}
        return httpx2.Client(base_url=self.server.url, headers=headers, timeout=60)


def post(client: httpx2.Client, path: str, **body: Any) -> None:
    client.post(path, content=msgspec.json.encode(body)).raise_for_status()


def program(script: str) -> bytes:
    return msgspec.msgpack.encode({"argv": ["sh", "-c", script]})


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    home: Path = tmp_path_factory.mktemp("neighbours") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(SETTINGS)
    with LiveServer(home) as server:
        yield Neighbours(server)


def answer(client: httpx2.Client, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Return the status and the body; of a stream its first event."""
    with client.stream(method, path, json=body) as response:
        if "event-stream" not in response.headers.get("content-type", ""):
            return response.status_code, response.read().decode()
        text = ""
        for piece in response.iter_text():
            text += piece
            if "\r\n\r\n" in text:
                break
        return response.status_code, text


def named(line: str, names: dict[str, str]) -> tuple[str, str]:
    method, path = line.split(" ")
    return method, re.sub(r"{(\w+)}", lambda match: names.get(match.group(1), "none"), path)


@pytest.mark.parametrize("line", LISTS)
def test_no_list_has_anything_of_others(neighbours: Neighbours, line: str) -> None:
    method, path = line.split(" ")
    with neighbours.client("bob") as bob:
        for query in QUERIES.get(line, ("",)):
            status, text = answer(bob, method, path + query, None if method == "GET" else {})
            assert status < 500
            if line not in OF_HOLDERS and path != "/v1/openapi.json":
                assert not [secret for secret in SECRETS if secret in text], text


@pytest.mark.parametrize("line", OF_OBJECTS)
def test_an_object_of_another_user_is_refused_without_her_name(neighbours: Neighbours, line: str) -> None:
    method, path = named(line, EXACT)
    with neighbours.client("bob") as bob:
        status, text = answer(bob, method, path, None if method == "GET" else {})
        assert status == 403
        assert '"not-the-owner"' in text
        assert "belongs to another user" in text
        assert "zelda" not in text


@pytest.mark.parametrize("line", OF_OBJECTS)
def test_no_hint_names_an_object_of_another_user(neighbours: Neighbours, line: str) -> None:
    method, path = named(line, NEAR)
    with neighbours.client("bob") as bob:
        status, text = answer(bob, method, path, None if method == "GET" else {})
        assert status in (200, 204, 400, 404, 409)
        assert not [secret for secret in SECRETS if secret in text], text
        if method == "GET" and status == 404:
            assert "does not exist" in text


@pytest.mark.parametrize("line", [line for line in OF_OBJECTS if line.startswith("GET ")])
def test_what_is_read_of_ones_own_has_nothing_of_others(neighbours: Neighbours, line: str) -> None:
    method, path = named(line, MINE)
    with neighbours.client("bob") as bob:
        status, text = answer(bob, method, path)
        assert status == 200, text
        assert not [secret for secret in SECRETS if secret in text], text


def test_a_hint_names_ones_own(neighbours: Neighbours) -> None:
    with neighbours.client("bob") as bob:
        assert "did you mean waits?" in answer(bob, "GET", "/v1/sessions/wait")[1]
        assert "did you mean my-pod?" in answer(bob, "GET", "/v1/allocations/my-pot")[1]
        assert "did you mean my-pair?" in answer(bob, "GET", "/v1/gangs/my-pear")[1]
    with neighbours.client("olga") as olga:
        assert "did you mean hush-work?" in answer(olga, "GET", "/v1/sessions/hash-work")[1]


def test_nothing_is_learned_by_depending_on_others(neighbours: Neighbours) -> None:
    with neighbours.client("bob") as bob:
        for kind in ("ok", "end", "fail", "start"):
            body = {"application": "command", "after": [f"{kind}:hush-work"]}
            status, text = answer(bob, "POST", "/v1/sessions", body)
            assert (status, '"not-the-owner"' in text, "zelda" in text) == (403, True, False)
            status, text = answer(bob, "POST", "/v1/sessions/mine-too/open", body)
            assert (status, '"not-the-owner"' in text, "zelda" in text) == (403, True, False)
            status, text = answer(bob, "POST", "/v1/sessions", body | {"after": [f"{kind}:hash-work"]})
            assert (status, "hush" in text) == (404, False)
        status, _ = answer(bob, "POST", "/v1/sessions", {"application": "command", "after": ["start:mine"]})
        assert status == 201


def test_events_of_others_have_a_number_a_time_and_a_kind(neighbours: Neighbours) -> None:
    with neighbours.client("bob") as bob, neighbours.client("zelda") as zelda, neighbours.client("vera") as vera:
        assert answer(bob, "GET", "/v1/events?session=hush-work")[0] == 403
        assert answer(bob, "GET", "/v1/events?session=hash-work") == (200, "[]")
        seen = {
            user: client.get("/v1/events?limit=1000").json()
            for user, client in (("bob", bob), ("zelda", zelda), ("vera", vera))
        }
        kinds = {user: [(each["number"], each["kind"]) for each in events] for user, events in seen.items()}
        assert kinds["bob"] == kinds["zelda"] == kinds["vera"]
        sessions = {user: {event["session"] for event in events} for user, events in seen.items()}
        assert sessions["bob"] >= {"mine", "waits"}
        assert sessions["zelda"] >= {"hush-work", "hush-old"}
        own = [event["data"]["uid"] for event in seen["bob"] if event["data"].get("uid")]
        assert {"my-pod", "my-pair-0"} == set(own)
        assert all(event["data"] for event in seen["bob"] if event["kind"] == "node.ready"), "nodes are of all"


def test_operators_and_viewers_read_all_and_owners_their_own(neighbours: Neighbours) -> None:
    for user in ("olga", "vera", "zelda"):
        with neighbours.client(user) as client:
            assert "hush-work" in {each["id"] for each in client.get("/v1/sessions").json()}
            assert "hush-work" in {each["session"] for each in client.get("/v1/executors").json()}
            assert "hush-pod" in answer(client, "GET", "/v1/allocation-report")[1]
            assert client.get("/v1/sessions/hush-work").json()["owner"] == "zelda"
    with neighbours.client("bob") as bob:
        assert {each["session"] for each in bob.get("/v1/executors").json()} == {"mine"}
        assert "my-pod" in answer(bob, "GET", "/v1/allocation-report")[1]


def test_who_holds_the_cards_is_shown(neighbours: Neighbours) -> None:
    with neighbours.client("bob") as bob:
        holders = {
            holder["session"] or holder["executor"] for card in bob.get("/v1/gpus").json() for holder in card["holders"]
        }
        assert {"hush-work", "hush-pod", "mine", "my-pod"} <= holders
