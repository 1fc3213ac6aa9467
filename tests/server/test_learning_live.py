"""A running server learns the workload, and shows the deciding strategy."""

from __future__ import annotations

import httpx2
import pytest

from tests.system.live_server import LiveServer, wait_until

pytestmark = pytest.mark.timeout(900)

LEARNED = 63
"""After so many arrivals there is a new estimate."""


def plan(http: httpx2.Client, resreq: str, **more: str) -> dict[str, object]:
    answer = http.post("/v1/plan", json={"resreq": resreq, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_parts_go_by_leftover_and_it_is_learned_from_requests_as_they_come(server: LiveServer):
    with server.client() as http:
        first = plan(http, "gpu=0.5")
        assert (first["strategy"], first["learned_from"]) == ("leftover", None)
        for number in range(LEARNED):
            uid = f"part-{number}"
            assert http.post("/v1/allocations", json={"uid": uid, "resreq": "cpu=1,gpu=0.3"}).status_code == 201
            http.delete(f"/v1/allocations/{uid}")
        wait_until(lambda: plan(http, "gpu=0.5")["learned_from"] == LEARNED, "the strategy is made ready")
        assert plan(http, "gpu=0.5")["terms"].keys() == {"leftover", "prices"}
        assert plan(http, "gpu=1")["strategy"] == "node-compact-gpu-low-load"
        assert plan(http, "gpu=1", strategy="leftover")["learned_from"] == LEARNED
        assert plan(http, "gpu=0.5", strategy="spread")["learned_from"] is None
        room = http.get("/v1/overview").json()["room"]
        assert (room["tasks"], room["missing"], room["fragments_milli"]) == (LEARNED, 0, 0)
        http.post("/v1/allocations", json={"uid": "most", "resreq": "gpu=0.8"})
        assert http.get("/v1/overview").json()["room"]["fragments_milli"] == 200
    server.kill()
    server.start()
    with server.client() as http:
        wait_until(lambda: plan(http, "gpu=0.5")["learned_from"] == LEARNED, "it is learned again after a crash")
