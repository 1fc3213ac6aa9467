"""Making room over HTTP and on the command line, on a real server with four cards of one node."""

from __future__ import annotations

import json

import httpx2
import pytest

from ullage.cli.main import main

ROUTE = "/v1/room"


@pytest.fixture
def cards(http: httpx2.Client) -> list[str]:
    """Two cards with a part of each held, one that is held, and one that is idle."""
    uuids = [gpu["uuid"] for gpu in http.get("/v1/gpus").json()]
    for uid, resreq, card in (("a", "gpu=0.4", 0), ("b", "gpu=0.5", 1), ("c", "gpu=1", 2)):
        body = {"uid": uid, "resreq": resreq, "gpus": [uuids[card]], "workload": "web", "priority": 5}
        assert http.post("/v1/allocations", json=body).status_code == 201
    return uuids


def test_a_dry_run_lists_the_moves_and_changes_nothing(http: httpx2.Client, cards: list[str]):
    answer = http.post(ROUTE, json={"resreq": "gpu=2"})
    body = answer.json()
    assert (answer.status_code, body["done"], body["least"], body["refusal"]) == (200, False, True, None)
    (move,) = body["moves"]
    assert (move["uid"], move["workload"], move["priority"]) == ("a", "web", 5)
    assert (move["gpus"], move["to_gpus"], move["gap"]) == ([cards[0]], [cards[1]], False)
    assert body["units"] == [{"uid": None, "node": move["node"], "gpus": [cards[0], cards[3]]}]
    assert body["cost"]["number"] == 1
    assert body["cost"]["gpu_milli"] == 400
    assert {held["state"] for held in http.get("/v1/allocations").json()} == {"bound"}
    assert http.get("/v1/nominations").json() == []


def test_places_of_moves_and_the_room_are_reserved(http: httpx2.Client, cards: list[str]):
    answer = http.post(ROUTE, json={"resreq": "gpu=2", "uids": ["wide"], "dry_run": False})
    assert (answer.status_code, answer.json()["done"]) == (202, True)
    assert http.get("/v1/allocations/a").json()["state"] == "releasing"
    assert {kept["uid"]: kept["gpus"] for kept in http.get("/v1/nominations").json()} == {
        "a": [cards[1]],
        "wide": [cards[0], cards[3]],
    }
    http.delete("/v1/allocations/a")
    thief = http.post("/v1/allocations", json={"uid": "thief", "resreq": "gpu=1", "priority": 100, "preempt": False})
    assert (thief.status_code, thief.json()["code"]) == (409, "reserved-for-nominated")
    back = http.post("/v1/allocations", json={"uid": "a", "resreq": "gpu=0.4"}).json()
    wide = http.post("/v1/allocations", json={"uid": "wide", "resreq": "gpu=2"}).json()
    assert [[gpu["uuid"] for gpu in held["gpus"]] for held in (back, wide)] == [[cards[1]], [cards[0], cards[3]]]
    moving = next(e for e in http.get("/v1/events?limit=1000").json() if e["kind"] == "allocation.moving")
    assert (moving["data"]["uid"], moving["data"]["to_gpus"]) == ("a", cards[1])


@pytest.mark.parametrize("uid", ["room", "room-1"])
def test_room_that_is_held_is_not_given_out_again_whatever_its_uid(http: httpx2.Client, uid: str):
    assert http.post(ROUTE, json={"resreq": "gpu=2", "uids": [uid], "dry_run": False}).status_code == 202
    assert http.post(ROUTE, json={"resreq": "gpu=2", "count": 2}).json()["refusal"]["had"] == 1
    other = http.post(ROUTE, json={"resreq": "gpu=2", "uids": ["other"], "dry_run": False}).json()
    (first, second) = (kept["gpus"] for kept in http.get("/v1/nominations").json())
    assert other["units"][0]["gpus"] == second
    assert not set(first) & set(second)


def test_an_impossible_move_reports_the_possible_number_and_the_staying_requests(http: httpx2.Client, cards: list[str]):
    asked = {"resreq": "gpu=2", "count": 2}
    body = http.post(ROUTE, json=asked).json()
    assert (body["refusal"]["code"], body["refusal"]["needed"], body["refusal"]["had"]) == ("no-moves-help", 2, 1)
    refused = http.post(ROUTE, json={**asked, "dry_run": False})
    assert (refused.status_code, refused.json()["code"]) == (409, "no-moves-help")
    assert http.post(ROUTE, json={"resreq": "gpu=2", "up_to": 4}).json()["stays"] == {"priority": 3}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"resreq": "gpu=0.5"}, "resreq"),
        ({"resreq": "cpu=1"}, "gpu"),
        ({"count": 0}, "count"),
        ({"count": 2**62}, "count"),
        ({"count": 2, "uids": ["x"]}, "uids"),
        ({"count": 2, "uids": ["x", "x"]}, "uids"),
        ({"uids": ["-x"]}, "uids"),
        ({"priority": 2**40}, "priority"),
    ],
)
def test_invalid_bodies_are_refused_at_the_edge(http: httpx2.Client, wrong: dict[str, object], field: str):
    answer = http.post(ROUTE, json={"resreq": "gpu=1", **wrong})
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_a_plan_shows_whether_moves_suffice(http: httpx2.Client, cards: list[str], capsys: pytest.CaptureFixture[str]):
    plan = http.post("/v1/plan", json={"resreq": "gpu=2", "move": True}).json()
    assert plan["refusal"]["code"] == "not-enough-gpus-on-node"
    assert [move["uid"] for move in plan["room"]["moves"]] == ["a"]
    assert http.post("/v1/plan", json={"resreq": "gpu=1", "move": True}).json()["room"] is None
    assert http.post("/v1/plan", json={"resreq": "gpu=2"}).json()["room"] is None
    assert main(["plan", "-r", "gpu=2", "--move"]) == 0
    assert "1 allocation moves, 0.4 cards" in capsys.readouterr().out
    assert main(["plan", "-r", "gpu=4", "--move"]) == 1
    assert "room can be made for 0 of 1" in capsys.readouterr().out


def test_the_verb_shows_its_changes_and_makes_them_only_with_yes(
    http: httpx2.Client, cards: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["defrag", "--for", "gpu=2", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] is False
    assert main(["defrag", "--for", "gpu=2", "--count", "2"]) == 75
    assert "room can be made for 1 of 2" in capsys.readouterr().out
    assert main(["defrag", "--for", "gpu=2", "--count", "2", "--yes"]) == 75
    assert "no-moves-help" in capsys.readouterr().err
    assert main(["defrag", "--for", "gpu=8"]) == main(["defrag", "--for", "gpu=8", "--yes"]) == 78
    assert "more would not fit on empty nodes either" in capsys.readouterr().out
    assert main(["defrag", "--for", "gpu=2", "--max-priority", "4"]) == 75
    assert "not moved: 3 priority" in capsys.readouterr().out
    assert main(["defrag", "--for", "gpu=0.5"]) == 2
    assert "--for: " in capsys.readouterr().err
    assert main(["defrag", "--for", "gpu=1", "--priority", str(2**40)]) == 2
    assert "--priority: " in capsys.readouterr().err
    assert main(["defrag", "--for", "gpu=1"]) == 0
    assert "it fits without moves" in capsys.readouterr().out
    assert main(["defrag", "--for", "gpu=2", "--yes"]) == 0
    assert "their owners are asked to move them" in capsys.readouterr().out
    assert {kept["uid"] for kept in http.get("/v1/nominations").json()} == {"a", "room-1"}


def test_a_quota_that_would_refuse_the_work_is_reported_before_anybody_moves(
    http: httpx2.Client, cards: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["quotas", "set", "default", "--max-workers", "3"]) == 0
    capsys.readouterr()
    assert main(["defrag", "--for", "gpu=2"]) == 75
    out = capsys.readouterr().out
    assert "it asks 1, 3 of 3 used (namespace default)" in out
    assert "room can be made" not in out
    answer = http.post(ROUTE, json={"resreq": "gpu=2", "dry_run": False})
    assert (answer.status_code, answer.json()["code"]) == (409, "total.max.workers.limit")
    assert http.get("/v1/nominations").json() == []
