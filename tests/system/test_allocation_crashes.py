"""The server dies at every named step of a write: after the restart the books are exact, and no card has two owners."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.system.live_server import LiveServer, wait_until
from ullage.storage.failpoint import POINTS

CARDS = """
[node]
gpus = 2
[[node.card]]
vram = "40g"
tflops = 100
"""
FULL = {"compute_gflops": 100_000, "vram_bytes": 40 << 30}

Call = Callable[[httpx2.Client], httpx2.Response]


def assume(http: httpx2.Client) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": "p", "resreq": "gpu=2,tflops=40,vram=8g", "commit": False})


def bind(http: httpx2.Client) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": "p", "resreq": "gpu=2,tflops=40,vram=8g"})


def commit(http: httpx2.Client) -> httpx2.Response:
    return http.post("/v1/allocations/p/commit")


def adjust(http: httpx2.Client) -> httpx2.Response:
    return http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 60, "vram": "8g"}})


def dealloc(http: httpx2.Client) -> httpx2.Response:
    return http.delete("/v1/allocations/p")


def release(http: httpx2.Client) -> httpx2.Response:
    return http.post("/v1/allocations/p/release", json={"within_s": 3600})


def preempt(http: httpx2.Client) -> httpx2.Response:
    asked = {"uid": "high", "resreq": "gpu=2,tflops=80,vram=8g", "qos": "high", "preempt": True}
    return http.post("/v1/allocations", json=asked)


def give_up(http: httpx2.Client) -> httpx2.Response:
    return http.delete("/v1/allocations/high")


def put_quota(http: httpx2.Client) -> httpx2.Response:
    return http.put("/v1/quotas/default", json={"total": {"max_workers": 1}})


def drop_quota(http: httpx2.Client) -> httpx2.Response:
    return http.delete("/v1/quotas/default")


CASES: list[tuple[str, list[Call], Call]] = [
    ("allocation.assumed:before", [], assume),
    ("allocation.assumed:stored", [], assume),
    ("allocation.bound:before", [], bind),
    ("allocation.bound:stored", [], bind),
    ("allocation.bound:before", [assume], commit),
    ("allocation.bound:stored", [assume], commit),
    ("allocation.bound:before:2", [bind], adjust),
    ("allocation.bound:stored:2", [bind], adjust),
    ("allocation.dropped:before", [bind], dealloc),
    ("allocation.dropped:stored", [bind], dealloc),
    ("allocation.releasing:before", [bind], preempt),
    ("allocation.releasing:stored", [bind], preempt),
    ("allocation.releasing:before", [bind], release),
    ("allocation.releasing:stored", [bind], release),
    ("allocation.dropped:before", [bind, release], dealloc),
    ("nomination.put:before", [bind], preempt),
    ("nomination.put:stored", [bind], preempt),
    ("nomination.dropped:before", [bind, preempt, dealloc], preempt),
    ("nomination.dropped:stored", [bind, preempt, dealloc], preempt),
    ("nomination.dropped:before", [bind, preempt], give_up),
    ("nomination.dropped:stored", [bind, preempt], give_up),
    ("quota.put:before", [], put_quota),
    ("quota.put:stored", [], put_quota),
    ("quota.dropped:before", [put_quota], drop_quota),
    ("quota.dropped:stored", [put_quota], drop_quota),
]


def test_every_point_is_tried():
    tried = {":".join(point.split(":")[:2]) for point, _, _ in CASES}
    assert tried == set(POINTS)


def facts(http: httpx2.Client) -> object:
    allocations = [
        {key: value for key, value in body.items() if not key.endswith("_at")}
        for body in http.get("/v1/allocations").json()
    ]
    free = sorted((gpu["uuid"], gpu["free"]["compute_gflops"]) for gpu in http.get("/v1/gpus").json())
    quotas = [(quota["namespace"], quota["total"], quota["used"]) for quota in http.get("/v1/quotas").json()]
    kept = [
        {key: value for key, value in body.items() if key != "since"} for body in http.get("/v1/nominations").json()
    ]
    return allocations, free, quotas, kept


def books_are_exact(http: httpx2.Client) -> None:
    held: dict[str, int] = {}
    for allocation in http.get("/v1/allocations").json():
        for gpu in allocation["gpus"]:
            held[gpu["uuid"]] = held.get(gpu["uuid"], 0) + gpu["compute_gflops"]
    for gpu in http.get("/v1/gpus").json():
        assert gpu["free"]["compute_gflops"] == FULL["compute_gflops"] - held.get(gpu["uuid"], 0)


@pytest.mark.parametrize(("point", "before", "call"), CASES, ids=[f"{p}-{c.__name__}" for p, _, c in CASES])
def test_a_crash_there_leaves_all_or_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, point, before, call):
    (home / "ullage.toml").write_text(CARDS)
    server = LiveServer(home)
    monkeypatch.setenv("ULLAGE_FAIL_AT", point)
    server.start()
    with server.client() as http:
        for step in before:
            assert step(http).is_success
        old = facts(http)
        with pytest.raises(httpx2.HTTPError):
            call(http)
    process = server.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, "the server died")
    monkeypatch.delenv("ULLAGE_FAIL_AT")
    with server, server.client() as http:
        found = facts(http)
        books_are_exact(http)
        assert call(http).status_code in (200, 201, 202, 204, 404), "the repeat is answered"
        final = facts(http)
        books_are_exact(http)
        assert found == (old if ":before" in point else final)
