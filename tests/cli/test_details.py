"""`show` and `why` of sessions and tasks: what was asked, what runs, how it ended, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.system.live_server import wait_until
from ullage.cli.main import main

Printed = Callable[[str], str]


@pytest.fixture
def printed(http: Any, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Run a command that succeeds, and return what it prints."""

    def run(line: str) -> str:
        capsys.readouterr()
        assert main(line.split()) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def ended(http: Any) -> Iterator[str]:
    """A closed array, of whose tasks one succeeded and two failed."""
    main(["submit", "-n", "ended", "-a", "0-2", *ASK, "-t", "5m", "-e", "SECRET=1", "--", *PROGRAM])
    wait_until(lambda: http.get("/v1/sessions/ended").json()["state"] == "closed", "its end")
    yield "ended"
    http.delete("/v1/sessions/ended")


ASK = ["-r", "cpu=0.1,mem=64m"]
PROGRAM = ["sh", "-c", "exit $ULLAGE_ARRAY_INDEX"]


def fields(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in text.splitlines())}


def test_a_session_and_a_task_are_shown_with_program_limits_and_names_of_variables(printed, ended):
    main(["queues", "set", "default", "--max-time", "1h", "--limit", "gpu=3"])
    for line in (f"show session {ended}", f"show task {ended}:2", f"show task {ended}/3"):
        found = fields(printed(line))
        assert found["program"] == "sh -c 'exit $ULLAGE_ARRAY_INDEX'"
        assert found["task_timeout_s"] == "300"
        assert {"PATH", "SECRET"} <= set(found["program.environment"].split(", "))
        assert found["program.working_directory"].startswith("/")
        assert "SECRET=1" not in str(found)
    session = json.loads(printed(f"show session {ended} -o json"))
    limits = {"queue": "default", "limit": "gpu=3", "max_resreq": None, "max_time_s": 3600.0}
    assert session["queue_limits"] == [limits]
    assert session["program"]["argv"] == PROGRAM
    assert (json.loads(printed(f"show task {ended}:1 -o json"))["errors"], session["retries"]) == (0, 0)
    main(["queues", "set", "default", "--max-time", "none", "--limit", "none"])


def test_a_session_of_functions_has_no_program(printed, http):
    http.post("/v1/sessions", json={"application": "function", "id": "calls", "retries": 2})
    assert fields(printed("show session calls"))["program"] == "-"
    assert fields(printed("show session calls"))["retries"] == "2"
    http.post("/v1/sessions/calls/cancel")
    http.delete("/v1/sessions/calls")


def test_why_of_a_closed_session_has_its_ends_its_first_failure_and_how_to_repeat_it(printed, ended):
    text = printed(f"why {ended}")
    assert "the session is closed; of 3 tasks 1 succeeded, 2 failed\n" in text
    assert "the first failure: ended:1 failed with code 1, " in text
    assert "`ullage requeue ended` runs 2 failed tasks again" in text
    assert "--cancelled" not in text
    found = json.loads(printed(f"why {ended} -o json"))
    assert found["tasks"] == {"succeed": 1, "failed": 2}
    assert (found["first_failure"]["index"], found["first_failure"]["code"]) == (1, 1)


def test_why_of_a_task_says_how_it_ended_or_why_it_waits(printed, ended, http):
    assert printed(f"why {ended}:2").startswith("ended:2: failed with code 2, ")
    assert printed(f"why {ended}/1").startswith("ended/1: succeed, ")
    main(["submit", "-n", "waits", *ASK, "--begin", "+1h", "--", "true"])
    text = printed("why waits/1")
    assert text.startswith("waits/1: pending since ")
    assert "waits: waiting-for-begin-time: it begins at " in text
    assert json.loads(printed("why waits/1 -o json"))["session"]["code"] == "waiting-for-begin-time"
    http.post("/v1/sessions/waits/cancel")
    http.delete("/v1/sessions/waits")


@pytest.mark.parametrize(
    ("target", "message"), [("ended:7", "has the indices 0-2"), ("ended/9", "task 9"), ("no/1", "no ")]
)
def test_why_of_what_does_not_exist_is_refused_by_name(ended, capsys, target, message):
    assert main(["why", target]) == 2
    assert message in capsys.readouterr().err
