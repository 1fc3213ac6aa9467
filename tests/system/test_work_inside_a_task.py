"""Work that a task of a real server submits goes to that server, also if the task does not know its home."""

from __future__ import annotations

import sys

import ullage
from tests.system.live_server import LiveServer
from ullage.cli.main import main


def names_of_sessions() -> list[str]:
    with ullage.connect() as inner, inner.session("inner", resreq="cpu=0.1,mem=128m") as session:
        session.submit(abs, -1).result(timeout=60)
        return [body.id for body in inner.sessions()]


def test_a_program_and_a_function_reach_the_server_that_runs_them(server: LiveServer, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(server.home.parent / "other"))
    submit = [sys.executable, "-m", "ullage.cli.main", "submit", "-n", "grandchild", "-r", "cpu=0.1,mem=64m"]
    command = ["run", "-n", "child", "-r", "cpu=0.1,mem=128m", "--", *submit, "--", "true"]
    assert main(command) == 0
    with ullage.connect() as client, client.session("outer", resreq="cpu=0.1,mem=256m") as session:
        seen = session.submit(names_of_sessions).result(timeout=60)
        assert {"child", "grandchild", "outer", "inner"} <= set(seen)
    assert not (server.home.parent / "other").exists()
