"""The server is killed after an eviction: after the restart the winner has the room before later sessions."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from tests.system.live_server import LiveServer, wait_until

SETTINGS = """
[node]
gpus = 2
[policy]
reclaim_grace_s = 0.2
"""
STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def server(home: Path) -> Iterator[LiveServer]:
    (home / "ullage.toml").write_text(SETTINGS)
    with LiveServer(home) as live:
        yield live


def run(http: httpx2.Client, name: str, tasks: int, priority: int = 0) -> None:
    """Open a session of programs that do not end, each on a card."""
    body = {"id": name, "application": "command", "resreq": "cpu=100m,mem=64m,gpu=1", "priority": priority}
    assert http.post("/v1/sessions", json=body).status_code == 201
    program = {"argv": ["sh", "-c", STUBBORN], "cwd": None, "env": {"PATH": "/usr/bin:/bin"}, "stdin": None}
    inputs = [base64.b64encode(msgspec.msgpack.encode(program)).decode()] * tasks
    answer = http.post(f"/v1/sessions/{name}/tasks", json={"key": name, "inputs": inputs})
    assert answer.status_code == 201, answer.text


def running(http: httpx2.Client, *names: str) -> list[int]:
    return [http.get(f"/v1/sessions/{name}").json()["running"] for name in names]


def evicted(http: httpx2.Client, name: str) -> bool:
    return http.get(f"/v1/sessions/{name}/why").json()["evicted"] is not None


@pytest.mark.parametrize("starts", [False, True], ids=["before it starts", "in the protected time"])
def test_winners_have_their_room_after_a_kill(server: LiveServer, starts: bool):
    with server.client() as http:
        run(http, "a", 2)
        wait_until(lambda: running(http, "a") == [2], "both cards are held")
        run(http, "b", 1)
        wait_until(lambda: evicted(http, "a"), "one is ended for the other session")
        if starts:
            wait_until(lambda: running(http, "b") == [1], "the winner runs")
        run(http, "c", 2, priority=5)
    server.kill()
    server.start()
    with server.client() as http:
        wait_until(lambda: sum(running(http, "a", "b", "c")) == 2, "both cards are held again")
        assert running(http, "a", "b", "c") == [0, 1, 1]
        assert evicted(http, "a")


def test_the_log_has_evictions_with_their_claimant_and_reason(server: LiveServer):
    with server.client() as http:
        run(http, "a", 2)
        wait_until(lambda: running(http, "a") == [2], "both cards are held")
        run(http, "b", 1)
        wait_until(lambda: evicted(http, "a"), "one is ended for the other session")
    server.stop()
    log = (server.home / "server.log").read_text()
    for kind in ("executor.reclaimed", "executor.evicted"):
        (line,) = (line for line in log.splitlines() if f"event='{kind}'" in line)
        assert "session='a'" in line
        assert "message='gives way to b: its session holds more than it deserves" in line
