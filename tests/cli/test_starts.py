"""When waiting sessions start, as the command line shows it."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.fake_api import FakeSession
from ullage.cli.main import main
from ullage.cli.starts import start_text
from ullage.wire.history import StartBody
from ullage.wire.session import CreateSession


@pytest.fixture
def now(fake, monkeypatch):
    """Three sessions wait: one starts in one to two hours, one is sure to start today, of one nothing is foreseen."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = float(int(time.time()))
    for name in ("sure", "far", "never"):
        fake.sessions[name] = FakeSession(CreateSession(application="function", owner="ann", resreq="gpu=1"), name)
    ranges = {"far": (5400, 3600, 7200), "sure": (60, 30, 90)}
    fake.starts = {
        name: StartBody(
            session=name,
            at=now + at,
            earliest=now + earliest,
            latest=now + latest,
            confidence=0.8,
            text="from 19 simulated futures",
        )
        for name, (at, earliest, latest) in ranges.items()
    }
    text = "no estimate: the request is larger than any node"
    fake.starts["never"] = StartBody(session="never", at=None, earliest=None, latest=None, text=text)
    yield now
    monkeypatch.undo()
    time.tzset()


def printed(capsys, *argv):
    assert main(argv) == 0
    return capsys.readouterr().out


def test_queue_start_has_the_range_its_chance_and_what_it_is_based_on_and_the_soonest_first(capsys, now):
    out = printed(capsys, "queue", "--start", "-o", "id,earliest,latest,confidence,text")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["sure", "far", "never"]
    titles, sure, far, never = printed(capsys, "queue", "--start").splitlines()
    assert re.split("  +", titles)[4:] == ["START", "IN", "EARLIEST", "LATEST", "CHANCE", "BASED ON"]
    assert "8 of 10" in far
    assert re.search(r"(1h30m|1h29m) +(1h00m|59m\d\ds) +(2h00m|1h59m) ", far)
    assert never.endswith("no estimate: the request is larger than any node")
    assert "simulated futures" in sure


def test_queue_start_as_json_has_the_numbers(capsys, now):
    far = next(row for row in json.loads(printed(capsys, "queue", "--start", "-o", "json")) if row["session"] == "far")
    assert (far["earliest"], far["at"], far["latest"], far["confidence"]) == (now + 3600, now + 5400, now + 7200, 0.8)


def test_why_of_a_waiting_session_has_a_line_on_its_start(capsys, now):
    assert re.search(r"\nstarts: between .+ and .+, 8 of 10 times; most likely at ", printed(capsys, "why", "far"))
    assert "\nstarts: no estimate: the request is larger than any node\n" in printed(capsys, "why", "never")


def test_times_of_today_have_no_date(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        noon = 1_800_000_000 // 86400 * 86400 + 43200.0
        body = StartBody(
            session="s", at=noon + 600, earliest=noon, latest=noon + 86400, confidence=0.8, text="from 9 futures"
        )
        found = start_text(body, noon)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == (
        "between 12:00 and 2027-01-16 12:00, 8 of 10 times; most likely at 12:10 (in 10m00s); from 9 futures"
    )
