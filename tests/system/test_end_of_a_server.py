"""The log of a server says why it ended; its address can be opened although it listens everywhere."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer, wait_until
from ullage.bootstrap.end import End
from ullage.bootstrap.settings_changes import unread_settings
from ullage.client.endpoint import ServerPlace


def reasons(server: LiveServer) -> list[str]:
    lines = (server.home / "server.log").read_text().splitlines()
    return [line.partition("reason=")[2].strip("'") for line in lines if "event='server.ending'" in line]


def test_the_log_says_who_or_what_ended_a_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "ullage.toml").write_text('[server]\nhost = "0.0.0.0"\n')
    with LiveServer(home) as server:
        assert server.url.startswith("http://localhost:")
        with server.client() as admin:
            secret = admin.post("/v1/tokens", json={"user": "ann", "role": "admin"}).json()["token"]
            assert admin.get("/healthz", headers={"Host": "0.0.0.0"}).json()["code"] == "wrong-host"
            admin.post("/v1/shutdown", headers={"Authorization": f"Bearer {secret}"})
        assert server.process is not None
        assert server.process.wait(60) == 0
        assert reasons(server) == ["a request of ann"]
        for number in (signal.SIGTERM, signal.SIGINT):
            server.start()
            server.process.send_signal(number)
            server.process.send_signal(number)  # a second one adds no reason
            assert server.process.wait(60) == 0
        assert reasons(server) == ["a request of ann", "the signal SIGTERM", "the signal SIGINT"]


def test_a_hangup_by_hand_ends_no_server_and_the_log_says_what_a_restart_would_change(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "ullage.toml").write_text("[history]\ndays = 30\n")
    with LiveServer(home, new_session=True) as server:
        log = home / "server.log"
        (home / "ullage.toml").write_text('[history]\ndays = 90\n[users]\nrun_as = "owner"\n')
        assert unread_settings(ServerPlace(home, home / "ullage.toml")) == ["history.days", "users.run_as"]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "changed_settings=['history.days', 'users.run_as']" in log.read_text(), "the line")
        with server.client() as client:
            assert client.get("/readyz").status_code == 200


def test_the_end_of_its_terminal_ends_a_server_in_order(tmp_path: Path) -> None:
    home, (terminal, end) = tmp_path / "home", os.openpty()
    with LiveServer(home, terminal=end) as server:
        os.close(end)
        os.close(terminal)
        assert server.process is not None
        assert server.process.wait(60) == 0
        assert reasons(server) == ["the signal SIGHUP: its terminal is gone"]


def test_the_log_says_that_an_error_ended_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> End:
        end = End()
        end.fail(ValueError("the books do not balance"))
        end.fail(KeyError("a later one"))
        end.begin("a request of ann")
        await end.wait()
        return end

    assert repr(asyncio.run(fail()).failure) == repr(ValueError("the books do not balance"))
    shown = capsys.readouterr().err
    assert shown.count("event='server.ending'") == 1
    assert "reason='an error: ValueError'" in shown
    assert "a later one" not in shown
