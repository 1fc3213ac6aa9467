"""Requests for cards over HTTP, on a real server with declared cards."""

from __future__ import annotations

import httpx2
import pytest

from tests.system.live_server import wait_until

GIB = 1 << 30


def allocate(http: httpx2.Client, uid: str, resreq: str, **more: object) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": uid, "resreq": resreq, **more})


def free(http: httpx2.Client) -> list[tuple[int, int]]:
    gpus = sorted(http.get("/v1/gpus").json(), key=lambda gpu: gpu["index"])
    return [(gpu["free"]["compute_gflops"], gpu["free"]["vram_bytes"] // GIB) for gpu in gpus]


def test_a_request_gets_parts_of_cards_once(http: httpx2.Client):
    first = allocate(http, "pod-1", "gpu=2,tflops=30,vram=10g", namespace="team")
    assert first.status_code == 201, first.text
    assert [(gpu["compute_gflops"], gpu["vram_bytes"]) for gpu in first.json()["gpus"]] == [(30_000, 10 * GIB)] * 2
    assert allocate(http, "pod-1", "gpu=2,tflops=30,vram=10g", namespace="team").json() == first.json()
    assert sorted(free(http)) == [(70_000, 30), (70_000, 30), (100_000, 40), (100_000, 40)]
    freed = http.delete("/v1/allocations/pod-1").json()
    assert (freed["already_gone"], len(freed["gpus"])) == (False, 2)
    assert http.delete("/v1/allocations/pod-1").json()["already_gone"] is True
    assert free(http) == [(100_000, 40)] * 4


def test_wrongly_named_cards_are_listed_and_all_are_freed(http: httpx2.Client):
    held = {gpu["uuid"] for gpu in allocate(http, "p", "gpu=2").json()["gpus"]}
    other = next(gpu["uuid"] for gpu in http.get("/v1/gpus").json() if gpu["uuid"] not in held)
    first, second = sorted(held)
    freed = http.delete(f"/v1/allocations/p?gpu={first}&gpu={other}").json()
    assert (set(freed["gpus"]), freed["not_held"], freed["not_named"]) == (held, [other], [second])
    assert free(http) == [(100_000, 40)] * 4


def test_a_refusal_has_every_stage_and_changes_nothing(http: httpx2.Client):
    answer = allocate(http, "big", "gpu=5,vram=1g")
    body = answer.json()
    assert (answer.status_code, body["code"]) == (409, "not-enough-gpus-on-node")
    assert next(stage["name"] for stage in body["stages"] if not stage["after"]) == "same-node"
    assert http.get("/v1/allocations").json() == []


def test_an_assumption_holds_its_cards_until_it_is_committed_or_forgotten(http: httpx2.Client):
    assumed = allocate(http, "p", "vram=40g", commit=False).json()
    assert assumed["state"] == "assumed"
    assert (100_000, 0) in free(http)
    assert http.post("/v1/allocations/p/commit").json()["state"] == "bound"
    assert http.post("/v1/allocations/p/commit").json()["state"] == "bound"
    assert http.post("/v1/allocations/p/forget").status_code == 204
    assert http.post("/v1/allocations/p/forget").status_code == 204
    answer = http.post("/v1/allocations/p/commit")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-assumed")


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_uid_returns_its_allocation_whatever_it_asks(http: httpx2.Client, commit: bool):
    first = allocate(http, "p", "gpu=1,vram=10g", commit=commit).json()
    again = allocate(http, "p", "gpu=2,vram=30g", commit=commit)
    (warning,) = again.json()["warnings"]
    assert warning == "p exists already and holds cpu=0,mem=0,gpu=1,vram=10Gi, not cpu=0,mem=0,gpu=2,vram=30Gi"
    assert (again.status_code, {**again.json(), "warnings": []}) == (201, first)
    planned = http.post("/v1/plan", json={"uid": "p", "resreq": "gpu=9,vram=30g"}).json()
    assert (planned["refusal"], planned["choice"]["gpus"]) == (None, first["gpus"])


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        ({"priority": 2**31}, "priority", str(2**31 - 1)),
        ({"priority": -(2**31) - 1}, "priority", str(-(2**31))),
        ({"priority": 10**30}, "priority", str(2**31 - 1)),
        ({"limit": {"tflops": 20}}, "limit.tflops", "'20' is not valid: 30 is requested"),
        ({"limit": {"tflops": 30, "vram": "1g"}}, "limit.vram", "'1Gi' is not valid: 10Gi is requested"),
        ({"resreq": "gpu=0.5", "limit": {"percent": 49.5}}, "limit.percent", "'49.5' is not valid: 50 is requested"),
        ({"limit": {"percent": 101}}, "limit.percent", "up to 100"),
        ({"limit": {"tflops": 30, "percent": 50}}, "limit.percent", "leave one of the two out"),
        ({"namespace": "a b"}, "namespace", "letters"),
        ({"uid": "a/b"}, "uid", "letters"),
        ({"strategy": ""}, "strategy", "choose one of"),
        ({"strategy": "nope"}, "strategy", "choose one of"),
    ],
)
def test_invalid_bodies_are_refused_at_the_edge(http: httpx2.Client, wrong: dict[str, object], field: str, says):
    body = {"uid": "p", "resreq": "tflops=30,vram=10g", **wrong}
    gang = {"members": [body, {"uid": "q", "resreq": "vram=1g"}]}
    named = http.get("/v1/gpus").json()[0]["uuid"]
    asked = [
        http.post("/v1/allocations", json=body),
        http.post("/v1/allocations", json={**body, "gpus": [named]}),
        http.post("/v1/plan", json=body),
        http.put("/v1/gangs/g", json=gang),
    ]
    for answer in asked:
        body = answer.json()
        assert (answer.status_code, body["code"], body["field"]) == (400, "invalid-request", field)
        assert says in body["message"]
    assert http.get("/v1/allocations").json() == []
    assert http.get("/v1/gangs/g").status_code == 404


def test_a_limit_of_its_request_and_one_in_another_unit_are_taken(http: httpx2.Client):
    for uid, limit in (("p", {"tflops": 30, "vram": "10g"}), ("q", {"percent": 40}), ("r", {"vram": "11g"})):
        assert allocate(http, uid, "tflops=30,vram=10g", limit=limit).status_code == 201


def test_a_member_of_a_gang_evicts_nobody(http: httpx2.Client):
    members = [{"uid": "p", "resreq": "vram=1g"}, {"uid": "q", "resreq": "vram=1g", "preempt": True}]
    answer = http.put("/v1/gangs/g", json={"members": members})
    body = answer.json()
    assert (answer.status_code, body["code"], body["field"]) == (400, "invalid-request", "members.preempt")
    assert http.get("/v1/gangs/g").status_code == 404


def test_an_adjusted_limit_below_its_request_is_refused(http: httpx2.Client):
    held = allocate(http, "p", "tflops=30,vram=10g").json()
    answer = http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 40}, "limit": {"tflops": 39}})
    assert (answer.status_code, answer.json()["field"]) == (400, "limit.tflops")
    assert http.get("/v1/allocations/p").json() == held


def test_a_plan_without_a_uid_never_matches_a_request(http: httpx2.Client):
    assert allocate(http, "plan", "vram=10g").status_code == 201
    assert allocate(http, ".plan", "vram=10g").status_code == 400
    planned = http.post("/v1/plan", json={"resreq": "gpu=9,vram=10g"}).json()
    assert planned["refusal"]["code"] == "not-enough-gpus-on-node"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"uid": "p", "resreq": "vram=1g", "gpus": ["nope"]}, 404, "unknown-gpu"),
        ({"uid": "p", "resreq": "cpu=1"}, 400, "invalid-request"),
        ({"uid": "p", "resreq": "vram=1g", "strategy": "nope", "gpus": ["nope"]}, 400, "invalid-request"),
        ({"uid": "p", "resreq": "gpu=1.5"}, 400, "invalid-request"),
        ({"uid": "p", "resreq": "vram=1g,pool=nowhere"}, 404, "unknown-pool"),
        ({"uid": "p", "resreq": "vram=1g", "qos": "best"}, 400, "invalid-request"),
        ({"uid": "p", "resreq": "vram=1g", "strategy": "best"}, 400, "invalid-request"),
        ({"uid": "", "resreq": "vram=1g"}, 400, "invalid-request"),
        ({"uid": "p", "resreq": "vram=41g"}, 409, "insufficient-vram"),
        ({"uid": "p", "resreq": "vram=1g,gpu_model=H100"}, 409, "wrong-model"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_request_is_refused_and_nothing_changes(http: httpx2.Client, body: dict[str, object], status, code):
    answer = http.post("/v1/allocations", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["message"]
    assert free(http) == [(100_000, 40)] * 4


def amounts(gflops: int, size: int) -> dict[str, int | None]:
    return {"compute_gflops": gflops, "compute_percent": None, "vram_bytes": size, "vram_percent": None}


def test_an_allocation_shows_its_limit_as_it_was_put(http: httpx2.Client):
    first = allocate(http, "p", "tflops=50,vram=10g", limit={"tflops": "60.5", "vram": "20g"}).json()
    assert first["limit"] == {"tflops": "60.5", "percent": None, "vram": 20 * GIB}
    assert allocate(http, "q", "tflops=50,vram=10g", limit=first["limit"]).json()["limit"] == first["limit"]
    assert allocate(http, "r", "percent=5", limit={"percent": 12.5}).json()["limit"]["percent"] == "12.5"
    assert allocate(http, "s", "tflops=5").json()["limit"] is None


def test_a_refused_scaling_has_the_largest_possible_amounts_and_a_dry_run_changes_nothing(http: httpx2.Client):
    allocate(http, "p", "tflops=50,vram=10g")
    before = free(http)
    asked = {"request": {"tflops": 300, "vram": "30g"}, "dry_run": True}
    answer = http.post("/v1/allocations/p/adjust", json=asked)
    assert (answer.status_code, answer.json()["code"]) == (409, "scaling-exceeded")
    assert answer.json()["max_request"] == amounts(100_000, 40 * GIB)
    assert free(http) == before
    grown = http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 90, "vram": "15g"}})
    assert grown.json()["delta_request"] == amounts(40_000, 5 * GIB)
    assert (10_000, 25) in free(http)


def test_a_plan_shows_the_placement_and_changes_nothing(http: httpx2.Client):
    plan = http.post("/v1/plan", json={"resreq": "gpu=2,vram=10g"}).json()
    assert plan["refusal"] is None
    assert len(plan["choice"]["gpus"]) == 2
    assert {stage["name"] for stage in plan["stages"]} >= {"quota", "phase", "room", "worker-cap", "same-node"}
    refused = http.post("/v1/plan", json={"resreq": "vram=80g"}).json()
    assert (refused["choice"], refused["refusal"]["code"]) == (None, "insufficient-vram")
    assert http.get("/v1/allocations").json() == []


def test_a_quota_counts_allocations_and_refuses_requests_beyond_it(http: httpx2.Client):
    allocate(http, "p", "tflops=60,vram=1g", namespace="team")
    quota = http.put("/v1/quotas/team", json={"total": {"requests": {"tflops": 100}}}).json()
    assert quota["used"]["requests"]["tflops"] == "60"
    answer = allocate(http, "q", "tflops=50,vram=1g", namespace="team")
    assert (answer.status_code, answer.json()["code"]) == (409, "total.max.tflops.request")
    assert allocate(http, "q", "tflops=40,vram=1g", namespace="team").status_code == 201
    assert allocate(http, "r", "tflops=50,vram=1g", namespace="other").status_code == 201
    assert http.delete("/v1/quotas/team").status_code == 204
    assert http.get("/v1/quotas/team").status_code == 404


def test_sessions_see_only_free_cards_of_requests(http: httpx2.Client):
    allocate(http, "p", "gpu=4")
    session = http.post("/v1/sessions", json={"application": "function", "resreq": "cpu=1,gpu=1"}).json()["id"]
    http.post(f"/v1/sessions/{session}/tasks", json={"key": "k", "inputs": [""]})
    why = http.get(f"/v1/sessions/{session}/why").json()
    assert (why["code"], why["deserved"]) == ("insufficient-gpu", 0)
    assert [(h["session"], h["executors"]) for h in why["holders"]] == [("requests of default", 1)]
    http.post(f"/v1/sessions/{session}/cancel")


def test_the_cards_of_a_pod_are_freed_by_its_name(http: httpx2.Client):
    allocate(http, "u1", "vram=1g", namespace="team", pod="web", pod_uid="u1")
    allocate(http, "u2", "vram=1g", namespace="team", pod="web", pod_uid="u2")
    assert [freed["uid"] for freed in http.delete("/v1/pods/team/web?uid=u1").json()] == ["u1"]
    assert [freed["uid"] for freed in http.delete("/v1/pods/team/web").json()] == ["u2"]
    assert http.delete("/v1/pods/team/web").json() == []


def test_a_node_shows_the_free_amounts_of_its_cards(http: httpx2.Client):
    node = http.get("/v1/nodes").json()[0]["name"]
    assert http.get("/v1/unused-nodes").json() == [node]
    allocate(http, "p", "tflops=30,vram=10g")
    allocate(http, "q", "tflops=30,vram=10g", commit=False)
    capacity = http.get(f"/v1/nodes/{node}/capacity").json()
    assert capacity["total"] == {"compute_gflops": 400_000, "vram_bytes": 160 * GIB}
    assert (capacity["available"]["vram_bytes"], capacity["effective"]["vram_bytes"]) == (150 * GIB, 140 * GIB)
    assert http.get("/v1/unused-nodes").json() == []
    assert http.get("/v1/nodes/nowhere/capacity").status_code == 404


QUOTA = {
    "total": {
        "requests": {"tflops": "100.5", "percent": None, "vram": 80 * GIB},
        "limits": {"tflops": "9007199254.001", "percent": None, "vram": None},
        "max_workers": 3,
    },
    "single": {
        "max_requests": {"tflops": "50", "percent": None, "vram": 2 * GIB + 1},
        "max_limits": {"tflops": None, "percent": None, "vram": None},
        "max_gpu_count": 2,
        "default_requests": {"tflops": None, "percent": "12.5", "vram": GIB},
        "default_limits": None,
    },
    "alert_threshold_percent": 60,
}


def test_a_quota_is_shown_as_it_was_put_and_may_be_put_back(http: httpx2.Client):
    first = http.put("/v1/quotas/team", json=QUOTA).json()
    assert {key: first[key] for key in QUOTA} == QUOTA
    again = http.put("/v1/quotas/team", json={key: first[key] for key in QUOTA}).json()
    assert again == first == http.get("/v1/quotas/team").json()


def test_a_quota_shows_its_usage_and_reservations_in_the_unit_of_its_name(http: httpx2.Client):
    limits = {"requests": {"tflops": 100, "vram": "40g"}, "max_workers": 10}
    http.put("/v1/quotas/team", json={"total": limits, "alert_threshold_percent": 60})
    allocate(http, "p", "gpu=2,tflops=500m,vram=1g", namespace="team", limit={"tflops": 10.65, "vram": "2g"})
    allocate(http, "q", "percent=15.001,vram=9g", namespace="team", commit=False)
    shown = http.get("/v1/quotas/team").json()
    q = {"tflops": "15.001", "percent": None, "vram": 9 * GIB}
    assert shown["assumed"] == {"requests": q, "limits": q, "workers": 1}
    assert shown["used"] == {
        "requests": {"tflops": "16.001", "percent": None, "vram": 11 * GIB},
        "limits": {"tflops": "36.301", "percent": None, "vram": 13 * GIB},
        "workers": 2,
    }
    assert shown["available_percent"] == {
        "requests.tflops": "83.99",
        "requests.vram": "72.50",
        "limits.tflops": "100",
        "limits.vram": "100",
        "workers": "80.00",
    }
    assert (shown["ready"], shown["reason"]) == (True, "CapacitySufficient")


def test_the_alert_of_a_quota_has_its_time_and_is_recorded_once(http: httpx2.Client):
    newest = http.get("/v1/events?limit=10000").json()[-1]["number"]
    http.put("/v1/quotas/team", json={"total": {"max_workers": 2}, "alert_threshold_percent": 60})
    before = http.get("/v1/quotas/team").json()
    allocate(http, "p", "vram=1g", namespace="team")
    allocate(http, "q", "vram=1g", namespace="team")
    short = http.get("/v1/quotas/team").json()
    assert (short["ready"], short["reason"]) == (False, "AlertThresholdReached")
    assert "0.00 % of workers" in short["message"]
    assert before["since"] < short["since"] <= short["last_update"]
    assert http.get("/v1/quotas/team").json() == short
    http.delete("/v1/allocations/q")
    assert http.get("/v1/quotas/team").json()["ready"]

    def alerts() -> list[tuple[str, str]]:
        events = http.get(f"/v1/events?after={newest}&limit=10000").json()
        return [(event["kind"], event["data"]["namespace"]) for event in events if event["kind"].startswith("quota.")]

    wait_until(lambda: len(alerts()) >= 2, "both events are stored")
    assert alerts() == [("quota.alert", "team"), ("quota.sufficient", "team")]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"total": {"max_workers": -1}}, "total.max_workers"),
        ({"total": {"requests": {"tflops": 2}, "limits": {"tflops": 1}}}, "total.limits.tflops"),
        ({"total": {"requests": {"tflops": "much"}}}, "total.requests.tflops"),
        ({"single": {"max_requests": {"percent": 10}}}, "single.max_requests.percent"),
        ({"single": {"max_requests": {"vram": "2g"}, "max_limits": {"vram": "1g"}}}, "single.max_limits.vram"),
        ({"single": {"max_gpu_count": -1}}, "single.max_gpu_count"),
        ({"alert_threshold_percent": 101}, "alert_threshold_percent"),
        ({"max_workers": 1}, "body"),
    ],
)
def test_a_quota_that_contradicts_itself_is_refused_and_the_old_one_stays(http: httpx2.Client, body, field):
    old = http.put("/v1/quotas/team", json={"total": {"max_workers": 5}}).json()
    answer = http.put("/v1/quotas/team", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert field in answer.json()["message"] or field == "body"
    assert http.get("/v1/quotas/team").json() == old


def test_a_quota_fills_missing_amounts_of_a_request(http: httpx2.Client):
    http.put("/v1/quotas/team", json={"single": {"default_requests": {"tflops": 7, "vram": "2g"}}})
    (gpu,) = allocate(http, "p", "vram=1g", namespace="team").json()["gpus"]
    assert (gpu["compute_gflops"], gpu["vram_bytes"]) == (7000, GIB)


def test_a_repeat_changes_nothing_and_records_no_event(http: httpx2.Client):
    allocate(http, "p", "vram=1g")
    newest = http.get("/v1/events?limit=10000").json()[-1]["number"]
    allocate(http, "p", "vram=1g")
    http.post("/v1/allocations/p/commit")
    assert [e["kind"] for e in http.get(f"/v1/events?after={newest}").json() if e["kind"].startswith("alloc")] == []


@pytest.mark.parametrize("seconds", [-1, 1e300])
def test_a_duration_that_makes_no_sense_is_refused(http: httpx2.Client, seconds: float):
    assert allocate(http, "p", "vram=1g", protected_s=seconds).json()["field"] == "protected_s"
    gang = {"members": [{"uid": "p", "resreq": "vram=1g"}], "timeout_s": seconds}
    assert http.put("/v1/gangs/g", json=gang).json()["field"] == "timeout_s"


def test_a_release_holds_its_cards_until_it_is_confirmed(http: httpx2.Client):
    allocate(http, "p", "gpu=4")
    answer = http.post("/v1/allocations/p/release", json={})
    assert (answer.status_code, answer.json()["state"], answer.json()["release_by"]) == (202, "releasing", None)
    assert allocate(http, "q", "gpu=1").status_code == 409
    assert len(http.delete("/v1/allocations/p").json()["gpus"]) == 4
    assert allocate(http, "q", "gpu=1").status_code == 201


def test_a_release_with_a_time_frees_its_cards_by_itself(http: httpx2.Client):
    allocate(http, "p", "gpu=4")
    http.post("/v1/allocations/p/release", json={"within_s": 0.1})
    wait_until(lambda: allocate(http, "q", "gpu=1").status_code == 201, "the cards are free")


@pytest.mark.parametrize(
    ("uid", "body", "status", "field"),
    [
        ("nobody", {}, 404, "uid"),
        ("p", {"within_s": -1}, 400, "within_s"),
        ("p", {"within_s": 1e300}, 400, "within_s"),
        ("p", {"deadline": 1}, 400, "body"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(http: httpx2.Client, uid, body, status, field):
    allocate(http, "p", "gpu=1")
    answer = http.post(f"/v1/allocations/{uid}/release", json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert http.get("/v1/allocations/p").json()["state"] == "bound"


def counters(http: httpx2.Client) -> dict[str, float]:
    lines = http.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_results_of_requests_are_counted_once(http: httpx2.Client):
    before = counters(http)
    for _ in range(2):
        allocate(http, "p", "tflops=50,vram=10g")
        for tflops in (60, 40):
            http.post("/v1/allocations/p/adjust", json={"request": {"tflops": tflops, "vram": "10g"}})
        http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 99, "vram": "10g"}, "dry_run": True})
    http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 40, "vram": "10g"}})
    http.post("/v1/allocations/p/adjust", json={"request": {"tflops": 101, "vram": "10g"}})
    allocate(http, "big", "gpu=5")
    allocate(http, "big", "gpu=5", preempt=True)
    http.post("/v1/plan", json={"resreq": "gpu=5"})
    http.put("/v1/gangs/g", json={"members": [{"uid": "m-0", "resreq": "gpu=1"}, {"uid": "m-1", "resreq": "gpu=1"}]})
    assert counters(http)['ullage_requests{state="bound"}'] == 3
    allocate(http, "urgent", "gpu=4", qos="high", preempt=True)
    assert counters(http)['ullage_requests{state="releasing"}'] == 3
    http.delete("/v1/gangs/g")
    http.delete("/v1/allocations/p")
    http.delete("/v1/allocations/urgent")
    after = counters(http)
    grown = {name: after[name] - before.get(name, 0) for name in after if name.endswith("_total") or "_total{" in name}
    assert {
        name: n for name, n in grown.items() if n and name.startswith(("ullage_alloc", "ullage_no", "ullage_pre"))
    } == {
        "ullage_allocations_total": 3,
        "ullage_allocation_releases_total": 3,
        'ullage_allocation_adjustments_total{direction="up"}': 2,
        'ullage_allocation_adjustments_total{direction="down"}': 2,
        'ullage_allocation_refusals_total{code="scaling-exceeded"}': 1,
        'ullage_allocation_refusals_total{code="not-enough-gpus-on-node"}': 2,
        "ullage_nominations_total": 1,
        "ullage_preemptions_total": 3,
    }
