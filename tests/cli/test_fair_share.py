"""Past use on the command line: queues, why and usage have it, and say so where there is none."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from tests.fake_api import FakeApi, FakeSession, queue
from tests.system.live_server import LiveServer, wait_until
from ullage.cli.main import main
from ullage.wire.fair_share import FairShareBody, ShareBody
from ullage.wire.history import StayBody
from ullage.wire.session import CreateSession

USED = ShareBody(
    queue="vision", owner=None, card_s=36_000.0, core_s=7200.0, memory_byte_s=0.0, part=0.8, due=0.5, factor=0.5
)
NOBODY = msgspec.structs.replace(USED, owner="ann", card_s=0.0, part=None, due=None, factor=1.0)


def test_a_queue_shows_what_it_used_and_what_its_weight_counts_as(capsys: Any, fake: FakeApi) -> None:
    fake.queues = [msgspec.structs.replace(queue("vision"), weight=2, past_use=USED), queue("none")]
    assert main(["show", "queue", "vision"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("past use")]
    assert line.split(maxsplit=2)[2] == (
        "10.0 card-hours, 2.0 core-hours, 80% where its weight gives 50%; its weight counts as 1"
    )
    assert main(["queues", "-o", "name,factor,used"]) == 0
    assert [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["vision", "0.5", "10.0 card-hours, 2.0 core-hours"],
        ["none", "-", "-"],
    ]


def test_usage_lists_queues_and_owners_with_their_factors(capsys: Any, fake: FakeApi) -> None:
    fake.fair_share = FairShareBody(half_life_s=604_800.0, at=0.0, shares=[USED, NOBODY])
    assert main(["usage", "--fair-share", "--sort", "factor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "use counts half after 7d\n"
    assert [line.split() for line in shown.out.splitlines()] == [
        ["QUEUE", "USER", "CARD-HOURS", "CORE-HOURS", "PART", "DUE", "FACTOR"],
        ["vision", "-", "10.00", "2.00", "80.0%", "50.0%", "0.5"],
        ["vision", "ann", "0.00", "2.00", "-", "-", "1"],
    ]
    assert main(["usage", "--fair-share", "-o", "name"]) == 0
    assert capsys.readouterr().out == "vision\nvision/ann\n"


def test_shares_are_read_page_by_page_up_to_a_limit(capsys: Any, fake: FakeApi) -> None:
    owners = [msgspec.structs.replace(NOBODY, owner=f"u{n:04}") for n in range(2500)]
    fake.fair_share = FairShareBody(half_life_s=604_800.0, at=0.0, shares=owners)
    assert main(["usage", "--fair-share", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == [f"vision/u{n:04}" for n in range(2500)]
    assert main(["usage", "--fair-share", "--limit", "1001", "-o", "name"]) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.split()), "warning: 1,499 shares more; a larger --limit" in shown.err) == (1001, True)
    assert main(["usage", "--fair-share", "--limit", "0"]) == 2


def test_without_a_half_life_usage_says_how_to_set_one(capsys: Any, fake: FakeApi) -> None:
    assert main(["usage", "--fair-share"]) == 0
    assert capsys.readouterr().err == (
        "warning: no half-life of past use is set (half_life under [fair_share]): shares are of the present\n"
    )


def test_why_says_what_past_use_does(capsys: Any, fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.sessions["s"] = FakeSession(CreateSession(application="function"), "s")
    text = "queue vision used 10.0 card-hours (half-life 7d)"
    why = fake.why
    monkeypatch.setattr(fake, "why", lambda name: msgspec.structs.replace(why(name), past_use=[text]))
    assert main(["why", "s"]) == 0
    assert f"\npast use: {text}\n" in capsys.readouterr().out


@pytest.fixture
def counting(tmp_path: Any) -> Any:
    with LiveServer(tmp_path / "home", ULLAGE_FAIR_SHARE_HALF_LIFE="1h") as server:
        yield server


def read(server: LiveServer, path: str, kind: Any) -> Any:
    with server.client() as client:
        return msgspec.json.decode(client.get(path).raise_for_status().content, type=kind)


def ended_stays(server: LiveServer) -> list[StayBody]:
    return [stay for stay in read(server, "/v1/history/stays?since=0", list[StayBody]) if stay.ended_at is not None]


def test_a_server_with_a_half_life_counts_use_also_after_a_crash(counting: LiveServer) -> None:
    program = base64.b64encode(json.dumps({"argv": ["sleep", "0.5"]}).encode()).decode()
    with counting.client() as client:
        body = {"application": "command", "id": "s", "resreq": "cpu=0.5", "close_when_done": True}
        client.post("/v1/sessions", json=body).raise_for_status()
        client.post("/v1/sessions/s/tasks", json={"inputs": [program], "key": "k"}).raise_for_status()
    wait_until(lambda: bool(ended_stays(counting)), "its executor has left it")
    (stay,) = ended_stays(counting)
    counting.kill()
    counting.start()
    found = read(counting, "/v1/fair-share", FairShareBody)
    assert found.half_life_s == 3600.0
    assert [(share.queue, share.owner is None) for share in found.shares] == [("default", True), ("default", False)]
    page = read(counting, "/v1/fair-share?limit=1&offset=1", FairShareBody)
    assert ([share.owner is None for share in page.shares], page.total) == ([False], 2)
    with counting.client() as client:
        assert client.get("/v1/fair-share?limit=0").json()["field"] == "limit"
    whole = stay.cores * ((stay.ended_at or 0.0) - stay.started_at)
    assert all(whole / 2 < share.core_s <= whole for share in found.shares), "less than a half-life has passed"
