"""`ullage up` and `down`, with a fake server process."""

import os
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest

from tests.fake_api import TOKEN, leave_files, server_file
from ullage.bootstrap.announcement import announce
from ullage.bootstrap.server import cards_text
from ullage.cli import server
from ullage.cli.main import main
from ullage.client import endpoint
from ullage.client.spec import session_spec
from ullage.model.error import InvalidRequest


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def announcing(home, url):
    """Code that writes what a server says of itself; the process is this one, which lasts."""
    return f"import pathlib; pathlib.Path({str(home)!r}, 'server.json').write_text({server_file(url, os.getpid())!r})"


def test_up_starts_a_process_and_waits_until_it_answers(capsys, monkeypatch, home, hidden_fake):
    hidden_fake.listen_in(home)
    code = announcing(home, hidden_fake.url)
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", code])
    assert main(["up"]) == 0
    assert capsys.readouterr().out == (
        f"ullage is running at {hidden_fake.url} (process {os.getpid()})\nits token is in {home / 'token'}; "
        "`ullage page` prints the link of its live page\n"
    )


def test_a_slow_start_names_its_log_once(capsys, monkeypatch, home, hidden_fake):
    looks = []

    def local():
        looks.append(1)
        if len(looks) == 5:
            leave_files(home, hidden_fake)
        return endpoint.local()

    monkeypatch.setattr(server, "_SLOW_S", 0.0)
    monkeypatch.setattr(server, "local", local)
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", "input()"])
    popen = subprocess.Popen
    gate = os.pipe()
    monkeypatch.setattr(subprocess, "Popen", lambda command, stdin, **more: popen(command, stdin=gate[0], **more))
    assert main(["up"]) == 0
    assert capsys.readouterr().err == f"ullage: still starting; its log is {home / 'server.log'}\n"
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


def test_commands_that_start_a_server_at_once_get_the_same_one(tmp_path):
    environment = os.environ | {"ULLAGE_HOME": str(tmp_path / "home"), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "ullage.cli.main"]
    starts = [subprocess.Popen([*command, "up"], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [start.communicate(timeout=300)[0] for start in starts]
    subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.PIPE)
    assert [start.returncode for start in starts] == [0, 0, 0]
    assert sorted(words.split(" at ")[0] for words in outputs) == ["ullage is already running"] * 2 + [
        "ullage is running"
    ]


def test_the_log_of_a_start_is_shown_from_the_begin_of_a_line(tmp_path):
    log = server._Log(tmp_path / "server.log")
    log.path.write_text("timestamp='2026' " + "x" * 3000 + "\nullage: the port is taken\n")
    assert log.message() == "ullage: the port is taken"


@pytest.mark.parametrize("name", ["server.log", "server.json"])
def test_a_file_of_the_home_that_cannot_be_used_is_named_and_is_no_fault_of_ullage(tmp_path, name):
    (tmp_path / "home" / name).mkdir(parents=True)
    environment = os.environ | {"ULLAGE_HOME": str(tmp_path / "home"), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "ullage.cli.main", "up", "--port=0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert f"{tmp_path / 'home' / name} cannot be used: Is a directory" in done.stderr
    assert "report" not in done.stderr


@pytest.mark.parametrize("verb", ["queue", "down", "up"])
def test_a_home_that_this_user_may_not_look_into_is_no_home_without_a_server(capsys, monkeypatch, home, verb):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    assert main([verb]) == 2
    assert f"the home {home} cannot be read: Permission denied; it belongs to another user" in capsys.readouterr().err


def test_a_second_up_reports_the_running_server(capsys, home, hidden_fake):
    leave_files(home, hidden_fake)
    assert main(["up"]) == 0
    assert capsys.readouterr().out == f"ullage is already running at {hidden_fake.url}\n"


@pytest.mark.parametrize(
    ("option", "present", "wished"),
    [
        ("--port=1", "port is {port}", "1"),
        ("--host=::1", "host is 127.0.0.1", "::1"),
        ("--gpus=2", "gpus is what detection finds", "2"),
        ("--config=/other.toml", "config is no file", "/other.toml"),
    ],
)
def test_an_option_that_differs_from_a_running_server_is_named_with_both_values_and_the_fix(
    capsys, home, hidden_fake, option, present, wished
):
    leave_files(home, hidden_fake)
    assert main(["up", option]) == 75
    said = capsys.readouterr()
    differs = f"{present.format(port=hidden_fake.url.rpartition(':')[2])}, not {wished}"
    assert f"a server is running at {hidden_fake.url}: {differs}; `ullage down` ends it, then `ullage up {option}`" in (
        said.err
    )
    assert not said.out


def test_a_running_server_does_not_come_to_the_terminal(capsys, home, hidden_fake):
    leave_files(home, hidden_fake)
    assert main(["up", "--foreground"]) == 75
    assert "it is not in this terminal; `ullage down` ends it, then `ullage up --foreground`" in capsys.readouterr().err


def test_only_the_options_that_differ_are_named(capsys, home, hidden_fake):
    hidden_fake.listen_in(home)
    announce(home, hidden_fake.url, {"gpus": "GPU-1,GPU-2", "config": "/a.toml"}, [])
    assert main(["up", "--gpus=GPU-1,GPU-2", "--config=/b.toml", "--port=0"]) == 75
    said = capsys.readouterr().err
    assert f"{hidden_fake.url}: config is /a.toml, not /b.toml; " in said
    assert "`ullage up --port=0 --config=/b.toml --gpus=GPU-1,GPU-2`" in said


SAME = [
    "--port=0",
    "--port={port}",
    "--host=127.0.0.1",
    "--host=localhost",
    "--gpus=2",
    "--gpus= 02",
    "--config=c.toml",
]


@pytest.mark.parametrize("option", [*SAME, "--config=./d/../c.toml"])
def test_options_that_a_running_server_has_already_are_fine(capsys, monkeypatch, home, hidden_fake, option, tmp_path):
    monkeypatch.chdir(tmp_path)
    hidden_fake.listen_in(home)
    announce(home, hidden_fake.url, {"gpus": "2", "config": str(tmp_path / "c.toml")}, [])
    port = hidden_fake.url.rpartition(":")[2]
    assert main(["up", option.format(port=port)]) == 0
    assert capsys.readouterr().out == f"ullage is already running at {hidden_fake.url}\n"


def test_a_server_records_the_options_it_was_started_with_and_warns_of_settings_that_cannot_be(capsys, home):
    command = ["up", "--gpus=2", "--port=0"]
    (home / "ullage.toml").write_text('resreq = "gpu=3"')
    try:
        assert [main(command), main(command), main(["up", "--gpus=1"])] == [0, 0, 75]
    finally:
        assert main(["down"]) == 0
    said = capsys.readouterr().err
    assert "gpus is 2, not 1;" in said
    assert said.count("warning: resreq: gpu 3 is more than this machine has for work (2)") == 1


def test_what_the_settings_of_a_server_say_counts_as_its_options(capsys, home):
    file = home / "ullage.toml"
    file.write_text("node.gpus = 2\nserver.port = 0")
    try:
        assert main(["up"]) == 0
        assert [main(["up", "--gpus=2"]), main(["up", f"--config={file}"])] == [0, 0]
        assert [main(["up", "--gpus=1"]), main(["up", "--gpus=0,1"])] == [75, 75]
    finally:
        assert main(["down"]) == 0
    said = capsys.readouterr().err
    assert "gpus is 2, not 1;" in said
    assert "gpus is 2, not 0,1;" in said


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_server_with_an_address_of_version_6_is_found_again_and_answers_there(capsys, home):
    try:
        assert [main(["up", "--host=::1", "--port=0"]), main(["up", "--host=::1"])] == [0, 0]
        url, token = endpoint.local().url, endpoint.local().token
        assert url.startswith("http://[::1]:")
        asked = urllib.request.Request(f"{url}/v1/nodes", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.status == 200
    finally:
        assert main(["down"]) == 0
    assert f"ullage is already running at {url}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cards", "text"), [(None, None), (2, "2"), (["0", "1"], "0,1"), (["GPU-1"], "GPU-1"), (["3"], "['3']")]
)
def test_cards_of_the_settings_are_as_the_option_has_them(cards, text):
    assert cards_text(cards) == text


@pytest.mark.parametrize("code", [1, 2, 69])
def test_a_failed_start_is_explained_once_and_its_exit_code_is_that_of_up(capsys, monkeypatch, home, code):
    command = [sys.executable, "-c", f"import sys; print('the port is taken', file=sys.stderr); sys.exit({code})"]
    monkeypatch.setattr(server, "_foreground_command", lambda _: command)
    assert main(["up"]) == code
    assert capsys.readouterr().err == "the port is taken\n"


@pytest.mark.parametrize(
    ("end", "message"), [("os.kill(os.getpid(), 9)", "(signal 9)"), ("sys.exit(3)", "(exit code 3)"), ("0", "code 0")]
)
def test_a_server_that_ends_without_a_word_is_unavailable(capsys, monkeypatch, home, end, message):
    monkeypatch.setattr(server, "_foreground_command", lambda _: [sys.executable, "-c", f"import os, sys; {end}"])
    assert main(["up"]) == 69
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["up --config=x.toml", "run -- true", "submit -- true"])
def test_a_deleted_working_directory_is_named(capsys, monkeypatch, fake, tmp_path, verb):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(verb.split()) == 2
    assert "the working directory was deleted" in capsys.readouterr().err


def test_functions_from_a_deleted_working_directory_are_refused(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(InvalidRequest, match="the working directory was deleted; change to another one"):
        session_spec(None, {"resreq": "cpu=1"})


@pytest.mark.parametrize("words", ["up", "up --foreground"])
def test_a_home_that_cannot_be_used_is_named(capsys, monkeypatch, tmp_path, words):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "file" / "home"))
    assert main(words.split()) == 2
    message = capsys.readouterr().err
    assert f"the home {tmp_path / 'file' / 'home'} cannot be used: Not a directory" in message
    assert "report" not in message


def test_a_demonstration_without_a_server_ends_with_the_exit_code_of_the_start(capfd, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "file" / "home"))
    assert main(["demo"]) == 2
    assert capfd.readouterr().err.count("cannot be used") == 1


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_is_none_is_named_before_anything_is_made(capsys, home, port):
    assert main(["up", "--foreground", f"--port={port}"]) == 2
    assert f"port: {port} is not valid" in capsys.readouterr().err
    assert not list(home.iterdir())


def test_the_options_of_up_reach_the_process(monkeypatch, home, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(server, "_start", lambda arguments: seen.append(server._foreground_command(arguments)) or None)
    main(["up", "--port", "0", "--config", "c.toml", "--gpus", "2"])
    assert seen[0][-3:] == ["--port=0", f"--config={tmp_path / 'c.toml'}", "--gpus=2"]


def test_down_waits_until_the_process_is_gone(capsys, home, hidden_fake, process):
    leave_files(home, hidden_fake, process.pid)
    hidden_fake.on_shutdown = process.kill
    assert main(["down"]) == 0
    assert capsys.readouterr().out == "the server has ended\n"
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == -9
    process.returncode = -9


def test_down_without_a_server_is_fine(capsys, home):
    assert main(["down"]) == 0
    assert capsys.readouterr().out == "no server is running\n"


def test_down_succeeds_if_a_dead_server_left_its_files(capsys, home):
    leave_files(home, "http://127.0.0.1:1", 2**22)
    assert main(["down"]) == 0


@pytest.fixture
def stopped(monkeypatch, home, hidden_fake):
    """A local server that takes requests and answers none."""
    monkeypatch.setattr("ullage.client.transport.ANSWER_S", 0.2)
    monkeypatch.setattr("ullage.client.transport.UNANSWERED_S", 0.0)
    leave_files(home, hidden_fake)
    hidden_fake.hang = threading.Event()
    yield hidden_fake
    hidden_fake.hang.set()


@pytest.mark.parametrize("verb", ["queue", "up", "down", "submit -- true", "events", "top", "run -- true"])
def test_a_verb_reports_a_stopped_server_and_ends(capsys, stopped, verb):
    assert main(verb.split()) == 69
    message = f"the server at {stopped.url} (process {os.getpid()}) does not answer"
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == f"ullage: {message}; waiting up to 1 s"
    assert f"ullage: {message}" in rest[0]


def test_down_explains_how_to_end_a_server_that_does_not_answer(capsys, stopped):
    main(["down"])
    assert f"(process {os.getpid()}) does not answer: `kill -CONT {os.getpid()}`" in capsys.readouterr().err


def test_down_finds_a_running_server_without_a_socket(capsys, home, process):
    leave_files(home, "http://127.0.0.1:1", process.pid)
    assert main(["down"]) == 69
    assert f"(process {process.pid}) does not answer" in capsys.readouterr().err


def test_version_is_printed(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == "ullage 0.1.0\n"


def test_page_prints_the_link_that_opens_the_live_page(capsys, home, hidden_fake):
    assert main(["page"]) == 69
    leave_files(home, hidden_fake)
    capsys.readouterr()
    assert main(["page"]) == 0
    assert capsys.readouterr().out == f"{hidden_fake.url}/enter#{TOKEN}\n"


def test_a_link_to_another_machine_needs_a_token(capsys, monkeypatch, hidden_fake):
    monkeypatch.setenv("ULLAGE_ENDPOINT", hidden_fake.url)
    assert main(["page"]) == 2
    shown = capsys.readouterr().err
    assert "ULLAGE_TOKEN" in shown
    assert "ullage token create --user NAME" in shown
