"""`ullage history`, `usage` and `delete --closed`, on a real server."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest


@pytest.fixture
def worked(http, ran):
    """Two users have each run one program on one card; a session of the second one is deleted."""
    for owner, code in (("ann", 0), ("bob", 3)):
        body = {"application": "command", "resreq": "cpu=1,gpu=1,mem=256m", "owner": owner, "close_when_done": True}
        session = http.post("/v1/sessions", json=body).json()["id"]
        argv = {"argv": ["sh", "-c", f"exit {code}"], "cwd": None, "env": {"PATH": "/usr/bin:/bin"}, "stdin": None}
        data = base64.b64encode(msgspec.msgpack.encode(argv)).decode()
        http.post(f"/v1/sessions/{session}/tasks", json={"inputs": [data], "key": "k"}).raise_for_status()
        while not http.get(f"/v1/sessions/{session}/results?wait=50").json()["closed"]:
            pass
    return ran


def test_the_history_lists_what_ran_with_its_state_and_hours(worked):
    code, out, _ = worked("history --since 1h --user ann -o json")
    assert code == 0
    (row,) = [row for row in json.loads(out) if row["owner"] == "ann"][-1:]
    assert (row["state"], row["succeed"]) == ("succeed", 1)
    _, out, _ = worked("history --since 1h --state failed -o id,owner,state,card-hours")
    assert "bob" in out
    assert "ann" not in out


def test_the_history_of_some_sessions_has_only_those_and_names_the_others(worked):
    _, out, _ = worked("history --since 1h -o name")
    chosen = next(iter(out.split()))
    code, out, err = worked(f"history --since 1h {chosen} gone -o name")
    assert (code, set(out.split())) == (0, {chosen})
    assert "session gone was not open in this period; --since 30d looks further back" in err


def test_usage_has_a_line_for_each_user_and_one_for_what_was_idle(worked):
    code, out, _ = worked("usage --by user,queue --since 1h -o json")
    assert code == 0
    lines = {line["user"]: line for line in json.loads(out)}
    assert {"ann", "bob", "(idle)"} <= set(lines)
    assert lines["ann"]["queue"] == "default"
    assert sum(line["card_percent"] for line in lines.values()) == pytest.approx(100)
    _, out, _ = worked("usage --since 1h")
    assert "CARD-HOURS" in out
    assert "(idle)" in out


def test_users_who_used_least_are_one_line_which_says_so(worked):
    code, out, err = worked("usage --since 1h --limit 1 -o json")
    assert code == 0
    lines = {line["user"]: line for line in json.loads(out)}
    assert len(lines) == 3
    assert {"(others)", "(idle)"} <= set(lines)
    assert sum(line["card_percent"] for line in lines.values()) == pytest.approx(100)
    assert "the line (others) is the sum of 1 group that used least" in err.replace("\n", " ")
    assert "--limit" in err


def test_the_lines_of_several_steps_say_of_which_they_are(worked):
    assert worked("usage --since 1h")[1].startswith("USER")
    assert worked("usage --since 1h --step 30m")[1].startswith("FROM")


def test_closed_sessions_are_deleted_by_kind_after_a_dry_run(worked):
    _, would, err = worked("delete --closed --owner ann --dry-run")
    assert "would be deleted" in err
    assert worked("delete --closed --owner ann --older-than 30d")[1] == ""
    assert worked("delete --closed --owner ann")[1] == would
    assert worked("sessions --owner ann -o name")[1] == ""
    assert "ann" in worked("history --since 1h")[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("usage --by usr", "did you mean user"),
        ("history --since yesterdat", "--since"),
        ("history --since 1d --until 2d", "--since: '1d' is not valid: the begin is not before the end (--until 2d)"),
        ("usage --since tomorrow", "--since: 'tomorrow' is not valid: the begin is not before the end (now)"),
        ("history --state done", "states of a past session"),
        ("delete", "--closed"),
        ("delete --older-than 30d", "--older-than needs --closed"),
        ("delete s --closed", "--closed"),
        ("delete s --queue=", "--queue needs --closed"),
        ("delete --closed --queue defaults --dry-run", "queue defaults does not exist; did you mean default?"),
    ],
)
def test_a_wrong_option_is_named(ran, line, said):
    code, _, err = ran(line)
    assert code != 0
    assert said in err


def test_the_queue_shows_when_waiting_sessions_start_or_why_that_is_not_known(http, ran):
    body = {"application": "command", "resreq": "cpu=1,gpu=9", "owner": "ann", "id": "wide"}
    http.post("/v1/sessions", json=body).raise_for_status()
    http.post("/v1/sessions/wide/tasks", json={"inputs": [""], "key": "k"}).raise_for_status()
    code, out, _ = ran("queue --start -o json")
    assert code == 0
    (line,) = [line for line in json.loads(out) if line["session"] == "wide"]
    assert (line["at"], line["owner"]) == (None, "ann")
    assert line["text"].startswith("no estimate: ")
    assert http.get("/v1/sessions/wide/start").json()["text"] == line["text"]
    http.post("/v1/sessions/wide/cancel").raise_for_status()
    assert http.get("/v1/sessions/none/start").status_code == 404
