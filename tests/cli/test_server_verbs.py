"""`ullage up` and `down`, around a server process that is a stand-in."""

import os
import subprocess
import sys

import pytest

from tests.fake_api import leave_files
from ullage.cli import server
from ullage.cli.main import main


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_up_starts_a_process_and_waits_until_it_answers(capsys, monkeypatch, home, hidden_fake):
    leave = f"import pathlib; pathlib.Path({str(home)!r}, 'server.json').write_text"
    code = f"""{leave}('{{"url": "{hidden_fake.url}", "pid": 7}}')"""
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", code])
    assert main(["up"]) == 0
    assert capsys.readouterr().out == (
        f"ullage is running at {hidden_fake.url} (process 7)\nits token is in {home / 'token'}\n"
    )


def test_a_slow_start_says_once_what_takes_so_long_and_shows_the_log(capsys, monkeypatch, home, hidden_fake):
    leave = f"import pathlib; pathlib.Path({str(home)!r}, 'server.json').write_text"
    code = f"""
print('compiling 1 of 2', flush=True)
input()
{leave}('{{"url": "{hidden_fake.url}", "pid": 7}}')"""
    monkeypatch.setattr(server, "_SLOW_S", 0.0)
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", code])
    gate, popen = os.pipe(), subprocess.Popen

    def start(command, stdin, **more):
        return popen(command, stdin=gate[0], **more)

    def news(log, told=server._Log.news):
        text = told(log)
        if "1 of 2" in text:
            os.write(gate[1], b"go\n")
        return text

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(server._Log, "news", news)
    assert main(["up"]) == 0
    said = capsys.readouterr().err
    assert said.count("the first start on a machine compiles") == 1
    assert said.count("compiling 1 of 2") == 1
    for end in gate:
        os.close(end)


def test_a_server_that_does_not_come_up_is_ended_with_the_wait_for_it(capsys, monkeypatch, home):
    started, popen = [], subprocess.Popen
    monkeypatch.setattr(server, "_START_S", 0.0)
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", "input()"])

    def start(command, stdin, **more):
        started.append(popen(command, stdin=subprocess.PIPE, **more))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    assert main(["up"]) == 69
    assert str(home / "server.log") in capsys.readouterr().err
    assert started[0].returncode is not None
    started[0].stdin.close()


def test_up_twice_says_so(capsys, home, hidden_fake):
    leave_files(home, hidden_fake.url, 7)
    assert main(["up"]) == 0
    assert capsys.readouterr().out == f"ullage is already running at {hidden_fake.url}\n"


def test_a_server_that_does_not_come_up_shows_the_end_of_its_log(capsys, monkeypatch, home):
    command = [sys.executable, "-c", "import sys; sys.exit('the port is taken')"]
    monkeypatch.setattr(server, "_foreground_command", lambda _: command)
    assert main(["up"]) == 69
    assert "the port is taken" in capsys.readouterr().err


def test_the_options_of_up_reach_the_process(monkeypatch, home, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(server, "_start", lambda arguments: seen.append(server._foreground_command(arguments)) or None)
    main(["up", "--port", "0", "--config", "c.toml", "--gpus", "2"])
    assert seen[0][-3:] == ["--port=0", f"--config={tmp_path / 'c.toml'}", "--gpus=2"]


def test_down_waits_until_the_process_is_gone(capsys, home, hidden_fake, process):
    leave_files(home, hidden_fake.url, process.pid)
    hidden_fake.on_shutdown = process.kill
    assert main(["down"]) == 0
    assert capsys.readouterr().out == "the server has ended\n"
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == -9
    process.returncode = -9


def test_down_without_a_server_is_fine(capsys, home):
    assert main(["down"]) == 0
    assert capsys.readouterr().out == "no server is running\n"


def test_down_of_a_dead_server_whose_files_are_left_is_fine(capsys, home):
    leave_files(home, "http://127.0.0.1:1", 2**22)
    assert main(["down"]) == 0


def test_version_is_printed(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == "ullage 0.1.0\n"
