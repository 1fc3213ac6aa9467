"""Estimates of starts as clients of a real server see them."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import httpx2
import msgspec
import pytest

from tests.server.test_http_api import opened, program, refusal
from ullage.client.client import connect
from ullage.server.starts import SharedEstimates
from ullage.service.foresight import CONFIDENCE, Estimate


def waits(http: httpx2.Client, name: str, resreq: str = "cpu=1,gpu=4,mem=256m") -> str:
    """Open a session with one program that runs until it is cancelled, for ten minutes at most."""
    session = opened(http, id=name, application="command", resreq=resreq, close_when_done=True, task_timeout_s=600.0)
    inputs = {"inputs": [program("sleep", "600")], "key": "k"}
    http.post(
        f"/v1/sessions/{session}/tasks",
        content=msgspec.msgpack.encode(inputs),
        headers={"Content-Type": "application/msgpack"},
    ).raise_for_status()
    return session


@pytest.fixture
def line(http: httpx2.Client) -> list[str]:
    """Return a session that runs, one that waits for its cards, and one that no node can hold."""
    runs = waits(http, "runs")
    while not http.get(f"/v1/sessions/{runs}").json()["running"]:
        pass
    names = [runs, waits(http, "next"), waits(http, "wide", "gpu=8")]
    yield names
    for name in names:
        http.post(f"/v1/sessions/{name}/cancel").raise_for_status()


def test_a_waiting_session_has_a_range_up_to_the_limit_of_what_runs_and_the_others_a_reason(
    http: httpx2.Client, line: list[str]
) -> None:
    runs, following, wide = line
    with connect() as client:
        found = client.start(following)
        assert found.earliest is not None
        assert found.at is not None
        assert found.latest is not None
        assert found.confidence == CONFIDENCE
        assert found.earliest <= found.at <= found.latest <= time.time() + 610
        assert "time limits" in found.text
        assert client.start(runs).text == "it has an executor already"
        assert client.start(wide).text == "no estimate: the request is larger than any node"
        assert {each.session for each in client.starts()} >= {following, wide}
        assert client.start(following) == found, "an estimate that is just made is given again"
    assert refusal(http.get("/v1/sessions/gone/start"))[:2] == (404, "not-found")


class _Counted:
    """A service whose estimates are counted."""

    def __init__(self) -> None:
        self.made: list[set[str]] = []
        self.store = SimpleNamespace(history=lambda _query, _now: [])
        self.starts = self

    def waiting(self) -> list[str]:
        return ["a", "b"]

    def estimating(self, sessions: set[str], _past: object) -> object:
        self.made.append(sessions)
        return lambda: {name: Estimate(text=name) for name in sessions}


def test_all_who_ask_at_once_share_one_estimate() -> None:
    service = _Counted()
    shared = SharedEstimates(service)

    async def ask() -> None:
        found = await asyncio.gather(*(shared.of([name]) for name in "abab"))
        assert [each.keys() >= {name} for each, name in zip(found, "abab", strict=True)] == [True] * 4
        assert service.made == [{"a", "b"}]
        await shared.of(["new"])
        assert service.made == [{"a", "b"}, {"a", "b", "new"}]

    asyncio.run(ask())
