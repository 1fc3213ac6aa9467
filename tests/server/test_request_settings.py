"""The settings of requests for cards, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.system.live_server import LiveServer

GIB = 1 << 30
SETTINGS = """
[node]
name = "lab-1"
gpus = 4
memory = "64g"
disk = "100g"
[[node.card]]
vram = "40g"
tflops = 100
[[node.card]]
ids = ["2", "3"]
pool = "serving"
[requests]
strategy = "compact-first"
preempt_cluster_wide = false
weights = { vram = 0, compute = 1 }
[requests.pools.serving]
oversubscription = { vram_expand_to_host_mem = 0, vram_expand_to_host_disk = 10, compute_oversell_ratio = 150 }
[[requests.budget]]
workload = "web"
min_available = 1
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("settings") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(SETTINGS)
    with LiveServer(home) as live:
        yield live


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx2.Client]:
    token = (server.home / "token").read_text().strip()
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client
        for known in client.get("/v1/allocations").json() + client.get("/v1/nominations").json():
            client.delete(f"/v1/allocations/{known['uid']}")


def allocate(http: httpx2.Client, uid: str, resreq: str, **more: object) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": uid, "resreq": resreq, **more})


def test_limits_add_up_to_the_virtual_capacity_and_no_further(http: httpx2.Client):
    before = http.get("/v1/nodes/lab-1/capacity").json()
    assert before["total"] == {"compute_gflops": 400_000, "vram_bytes": 160 * GIB}
    assert before["virtual"] == {"compute_gflops": 600_000, "vram_bytes": 170 * GIB}
    limit = {"tflops": 400, "vram": "100g"}
    assert allocate(http, "a", "tflops=10,vram=1g,pool=serving", limit=limit).status_code == 201
    after = http.get("/v1/nodes/lab-1/capacity").json()
    assert after["virtual_available"] == {"compute_gflops": 200_000, "vram_bytes": 70 * GIB}
    refused = allocate(http, "b", "tflops=10,vram=1g,pool=serving", limit={"tflops": 201, "vram": "1g"})
    assert (refused.status_code, refused.json()["code"]) == (409, "oversubscription-limit")
    limit = {"tflops": 200, "vram": "70g"}
    assert allocate(http, "b", "tflops=10,vram=1g,pool=serving", limit=limit).status_code == 201


def test_the_weights_decide_which_card_is_the_fullest(http: httpx2.Client):
    fuller, other = (gpu["uuid"] for gpu in http.get("/v1/gpus").json()[:2])
    allocate(http, "compute", "tflops=50,vram=1g", gpus=[fuller])
    allocate(http, "vram", "tflops=1,vram=30g", gpus=[other])
    placed = allocate(http, "new", "tflops=1,vram=1g").json()
    assert [gpu["uuid"] for gpu in placed["gpus"]] == [fuller]


def test_requests_of_other_namespaces_are_not_evicted(http: httpx2.Client):
    allocate(http, "low", "gpu=4", namespace="other")
    asked = {"qos": "high", "preempt": True}
    refused = allocate(http, "high", "gpu=1", **asked)
    assert refused.status_code == 409
    assert refused.json()["attempts"][0]["shielded"] == {"other-namespace": 1}
    assert allocate(http, "high", "gpu=1", namespace="other", **asked).status_code == 202


def test_a_budget_protects_workers_of_a_workload_if_other_victims_suffice(http: httpx2.Client):
    cards = [gpu["uuid"] for gpu in http.get("/v1/gpus").json()]
    for uid, card, workload in zip(("w0", "w1", "j0", "j1"), cards, ("web", "web", "job", "job"), strict=True):
        allocate(http, uid, "gpu=1", gpus=[card], workload=workload, priority=1 if workload == "job" else 0)
    evicted = [
        {victim["uid"] for victim in allocate(http, uid, "gpu=1", qos="high", preempt=True).json()["victims"]}
        for uid in ("first", "second")
    ]
    assert (len(evicted[0] & {"w0", "w1"}), len(evicted[1] & {"j0", "j1"})) == (1, 1)
