"""Preemption over HTTP and on the command line, on a real server with declared cards."""

from __future__ import annotations

import json

import httpx2
import pytest

from ullage.cli.main import main

GIB = 1 << 30


def allocate(http: httpx2.Client, uid: str, resreq: str = "gpu=4,tflops=80,vram=8g", **more: object) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": uid, "resreq": resreq, **more})


def test_victims_are_named_until_they_are_gone_and_then_the_request_is_placed(http: httpx2.Client):
    assert allocate(http, "low", workload="web").status_code == 201
    assert allocate(http, "high", qos="high").status_code == 409
    first = allocate(http, "high", qos="high", preempt=True)
    body = first.json()
    assert (first.status_code, body["state"], len(body["gpus"])) == (202, "nominated", 4)
    (victim,) = body["victims"]
    assert (victim["uid"], victim["workload"], victim["priority"]) == ("low", "web", 0)
    assert [(gives["compute_gflops"], gives["vram_bytes"]) for gives in victim["gives"]] == [(80_000, 8 * GIB)] * 4
    assert victim["reason"]["code"] == "insufficient-compute"
    assert http.get("/v1/allocations/low").json()["state"] == "releasing"
    again = allocate(http, "high", qos="high", preempt=True)
    assert again.status_code == 202
    assert again.json() == body
    assert http.get("/v1/nominations").json()[0]["uid"] == "high"
    events = {event["kind"]: event["data"] for event in http.get("/v1/events?limit=1000").json()}
    assert (events["allocation.preempted"]["uid"], events["allocation.preempted"]["claimant"]) == ("low", "high")

    http.delete("/v1/allocations/low")
    taken = allocate(http, "thief", "tflops=30,vram=1g")
    assert (taken.status_code, taken.json()["code"]) == (409, "reserved-for-nominated")
    placed = allocate(http, "high", qos="high", preempt=True)
    assert (placed.status_code, placed.json()["state"], placed.json()["priority"]) == (201, "bound", 10_000)
    assert allocate(http, "high", qos="high", preempt=True).json() == placed.json()
    assert http.get("/v1/nominations").json() == []


def test_a_fitting_request_evicts_nothing(http: httpx2.Client):
    assert allocate(http, "low", "tflops=80,vram=8g").status_code == 201
    assert allocate(http, "high", "tflops=80,vram=8g", qos="high", preempt=True).status_code == 201
    assert http.get("/v1/allocations/low").json()["state"] == "bound"


def test_protected_requests_are_counted_per_node(http: httpx2.Client):
    allocate(http, "low", protected_s=3600)
    refused = allocate(http, "high", qos="high", preempt=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "insufficient-compute")
    (attempt,) = refused.json()["attempts"]
    assert (attempt["eligible"], attempt["shielded"], attempt["reason"]["code"]) == (0, {"protected": 1}, "no-victims")
    assert allocate(http, "equal", preempt=True).json()["attempts"][0]["shielded"] == {"priority": 1}
    assert http.get("/v1/nominations").json() == []


def test_a_request_that_is_given_up_keeps_no_room(http: httpx2.Client):
    allocate(http, "low")
    assert allocate(http, "high", qos="high", preempt=True).status_code == 202
    given_up = http.delete("/v1/allocations/high").json()
    assert (given_up["gpus"], given_up["unknown"], given_up["already_gone"]) == ([], False, False)
    assert http.get("/v1/nominations").json() == []
    http.delete("/v1/allocations/low")
    assert allocate(http, "next").status_code == 201


@pytest.mark.parametrize("more", [{"gpus": ["x", "y"]}, {"commit": False}])
def test_preemption_chooses_and_binds(http: httpx2.Client, more: dict[str, object]):
    answer = allocate(http, "high", preempt=True, **more)
    assert (answer.status_code, answer.json()["field"]) == (400, "preempt")


def test_a_plan_shows_victims_cost_and_attempts_and_does_nothing(http: httpx2.Client):
    allocate(http, "low", priority=3)
    before = http.get("/v1/allocations").json()
    asked = {"resreq": "gpu=4,tflops=80,vram=8g", "qos": "critical"}
    assert http.post("/v1/plan", json=asked).json()["preemption"] is None
    plan = http.post("/v1/plan", json={**asked, "preempt": True}).json()
    assert (plan["choice"], plan["refusal"]["code"]) == (None, "insufficient-compute")
    found = plan["preemption"]
    assert ([victim["uid"] for victim in found["victims"]], len(found["gpus"])) == (["low"], 4)
    assert (found["cost"]["highest"], found["cost"]["number"], found["cost"]["node"]) == (3, 1, found["node"])
    assert [(attempt["victims"], attempt["eligible"]) for attempt in found["attempts"]] == [(["low"], 1)]
    nobody = http.post("/v1/plan", json={**asked, "priority": 3, "preempt": True}).json()["preemption"]
    assert (nobody["node"], nobody["victims"], len(nobody["attempts"])) == (None, [], 1)
    assert http.get("/v1/allocations").json() == before


def test_the_command_line_plans_evicts_and_places(http: httpx2.Client, capsys: pytest.CaptureFixture[str]):
    allocate(http, "low")
    words = ["-r", "gpu=4,tflops=80,vram=8g", "--qos", "high"]
    assert main(["plan", *words]) == 1
    assert main(["plan", *words, "--preempt"]) == 0
    assert main(["plan", *words, "--priority", "0", "--preempt"]) == 1
    shown = capsys.readouterr().out
    assert "would fit on node" in shown
    assert "no eviction makes it fit" in shown
    assert main(["alloc", "high", *words, "--preempt"]) == 75
    assert "80 TFLOPS and 8Gi of 4 cards" in capsys.readouterr().out
    assert main(["alloc", "high", *words, "--preempt", "-o", "json"]) == 75
    assert json.loads(capsys.readouterr().out)["victims"][0]["uid"] == "low"
    assert main(["free", "low"]) == 0
    assert main(["alloc", "high", *words, "--preempt"]) == 0


def test_the_description_names_both_answers(http: httpx2.Client):
    responses = http.get("/v1/openapi.json").json()["paths"]["/v1/allocations"]["post"]["responses"]
    assert {code for code in responses if code < "4"} == {"201", "202"}
    assert responses["202"]["content"]["application/json"]["schema"]["$ref"].endswith("/NominationBody")
