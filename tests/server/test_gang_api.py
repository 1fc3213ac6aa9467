"""Gangs of requests and pods in the predecessor's words, over HTTP on a real server."""

from __future__ import annotations

import httpx2
import pytest

from tests.system.live_server import wait_until
from ullage.cli.main import main


def members(*uids: str, resreq: str = "gpu=1") -> list[dict[str, str]]:
    return [{"uid": uid, "resreq": resreq} for uid in uids]


def test_a_gang_gets_its_cards_together_or_waits_and_gets_them_once_there_is_room(http: httpx2.Client):
    http.post("/v1/allocations", json={"uid": "other", "resreq": "gpu=2"})
    gang = http.put("/v1/gangs/g", json={"members": members("a", "b", "c")}).json()
    assert (gang["phase"], [member["allocation"] for member in gang["members"]]) == ("waiting", [None] * 3)
    assert [a["uid"] for a in http.get("/v1/allocations").json()] == ["other"]
    http.delete("/v1/allocations/other")
    wait_until(lambda: http.get("/v1/gangs/g").json()["phase"] == "running", "the gang runs")
    assert sorted(a["uid"] for a in http.get("/v1/allocations").json()) == ["a", "b", "c"]
    assert http.delete("/v1/gangs/g").status_code == 204
    assert http.get("/v1/allocations").json() == []
    assert http.get("/v1/gangs/g").status_code == 404


def test_a_gang_without_its_quorum_waits_for_members(http: httpx2.Client):
    first = http.put("/v1/gangs/q", json={"members": members("a"), "required": 1}).json()
    assert first["phase"] == "running"
    http.delete("/v1/gangs/q")
    assert http.put("/v1/gangs/q", json={"members": members("a", "a")}).status_code == 400


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"required": 0}, 400, "gang.required"),
        ({"required": 2}, 400, "gang.required"),
        ({"members": members("a", resreq="gpu=1,pool=nowhere")}, 404, "pool"),
    ],
)
def test_an_invalid_gang_is_refused(http: httpx2.Client, wrong: dict[str, object], status: int, field: str):
    answer = http.put("/v1/gangs/w", json={"members": members("a"), **wrong})
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert http.get("/v1/gangs/w").status_code == 404


def test_a_pod_document_is_simulated_in_the_words_of_the_predecessor(http: httpx2.Client):
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "annotations": {"tensor-fusion.ai/tflops-request": "50", "tensor-fusion.ai/vram-request": "8Gi"},
        },
        "spec": {"containers": []},
    }
    for path in ("/api/simulate-schedule", "/v1/simulate-schedule"):
        answer = http.post(f"{path}?domain=tensor-fusion.ai", json=pod)
        assert answer.status_code == 200, answer.text
        assert answer.json()["error"] is None
        assert answer.json()["scheduleResult"]["FeasibleNodes"] == 1
    assert http.post("/api/simulate-schedule", content=b"[nope").status_code == 400
    assert http.get("/api/allocation").json()["allocation"] == {}


def test_a_member_that_is_freed_does_not_come_back(http: httpx2.Client):
    assert http.put("/v1/gangs/m", json={"members": members("a", "b")}).json()["phase"] == "running"
    http.delete("/v1/allocations/a")
    assert [a["uid"] for a in http.get("/v1/allocations").json()] == ["b"]
    http.delete("/v1/allocations/b")
    assert http.get("/v1/gangs/m").status_code == 404


def test_a_preempting_gang_is_placed_when_its_victims_are_freed(http: httpx2.Client):
    http.post("/v1/allocations", json={"uid": "low", "resreq": "gpu=4"})
    urgent = [{**each, "qos": "high"} for each in members("a", "b")]
    plain = http.put("/v1/gangs/p", json={"members": urgent}).json()
    assert [member["code"] for member in plain["members"]] == ["gpu-not-idle", "gang-does-not-fit"]
    assert plain["members"][1]["message"].endswith(": 0 of 2 would fit")
    http.delete("/v1/gangs/p")
    gang = http.put("/v1/gangs/p", json={"members": urgent, "preempt": True}).json()
    assert (gang["phase"], {member["code"] for member in gang["members"]}) == ("waiting", {"waiting-for-eviction"})
    assert http.get("/v1/allocations/low").json()["state"] == "releasing"
    assert {each["uid"] for each in http.get("/v1/nominations").json()} == {"a", "b"}
    http.delete("/v1/allocations/low")
    wait_until(lambda: http.get("/v1/gangs/p").json()["phase"] == "running", "the gang runs")
    assert http.get("/v1/nominations").json() == []


def test_preemption_is_a_field_of_the_gang_and_a_domain_is_a_label(http: httpx2.Client):
    one = [{"uid": "a", "resreq": "gpu=1", "preempt": True}]
    assert http.put("/v1/gangs/x", json={"members": one}).json()["field"] == "members.preempt"
    assert http.put("/v1/gangs/x", json={"members": members("a"), "domain": ""}).json()["field"] == "gang.domain"
    gang = http.put("/v1/gangs/x", json={"members": members("a", "b"), "domain": "rack"}).json()
    assert (gang["domain"], gang["domains"]) == ("rack", 1)


def test_a_gang_may_name_levels_and_have_to_stay_within_one(http: httpx2.Client):
    body = {"members": members("a"), "within": "rack", "preempt": True}
    assert http.put("/v1/gangs/x", json=body).json()["field"] == "gang.within"
    gang = http.put("/v1/gangs/x", json={"members": members("a"), "domain": "block, rack", "within": "block"}).json()
    assert (gang["phase"], gang["domain"], gang["domains"]) == ("running", "rack", 1)


def test_the_command_line_shows_the_number_of_domains_of_a_gang(
    http: httpx2.Client, capsys: pytest.CaptureFixture[str]
):
    assert main(["gang", "submit", "t", "a", "b", "-r", "gpu=1", "--domain", "rack", "--preempt"]) == 0
    assert "t: running, in 1 of rack" in capsys.readouterr().out
    main(["gang", "end", "t"])
    assert main(["gang", "submit", "t", "a", "b", "-r", "gpu=1", "--domain", "block,rack", "--within", "block"]) == 0
    assert "t: running, in 1 of rack" in capsys.readouterr().out
    assert main(["gang", "submit", "u", "c", "-r", "gpu=1", "--within", "block", "--preempt"]) != 0
    assert "--within" in capsys.readouterr().err
