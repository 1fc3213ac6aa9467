"""Logs of programs when the server ends: in order while they are followed, and by a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

import ullage
from tests.server.test_task_logs import logs_of, messages, printed, started
from tests.system.live_server import LiveServer, wait_until


def test_a_server_ends_in_order_while_an_endless_log_is_followed_by_one_who_does_not_read(server: LiveServer):
    with server.client() as http:
        session = started(http, "exec yes")
        with http.stream("GET", f"/v1/sessions/{session}/tasks/1/log?follow=1") as answer:
            next(answer.iter_raw())
            server.stop()


def test_logs_of_sessions_that_are_gone_go_at_the_next_start_and_others_stay(server: LiveServer):
    with server.client() as http:
        kept = started(http, "echo kept")
        assert printed(messages(http, kept)) == b"kept\n"
    server.kill()
    left = server.home / "logs/tasks/gone@99"
    left.mkdir()
    (left / "1.out").write_text("secret\n")
    server.start()
    wait_until(lambda: not left.exists(), "the logs without a session are removed")
    assert len(logs_of(server, kept)) == 1
    with server.client() as http:
        assert printed(messages(http, kept)) == b"kept\n"


@pytest.mark.filterwarnings("ignore:no server answers")
def test_a_reader_of_a_session_sees_each_byte_once_although_the_server_is_killed(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    gate = tmp_path / "gate"
    script = f"echo begun; echo oops >&2; while [ ! -e {gate} ]; do sleep 0.05; done; echo last"
    with server.client() as http:
        session = started(http, script, close_when_done=True)
    with ullage.connect() as client:
        log = client.open_session(session).logs(follow=True)
        seen: dict[str, bytes] = {"stdout": b"", "stderr": b"", "": b""}
        for piece in log:
            assert piece.task == 1
            seen[piece.stream] += piece.data
            if not gate.exists() and seen["stdout"] == b"begun\n" and seen["stderr"]:
                server.kill()
                server.start()
                gate.touch()
    assert seen["stdout"] == b"begun\nbegun\nlast\n"  # the second attempt appends
    assert seen["stderr"] == b"oops\noops\n"
