"""`ullage exec`: a program beside a running task, with real processes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.certificates import Certificates
from tests.system.live_server import LiveServer, wait_until
from tests.system.terminals import Shell, host_of, kill, read_until, with_word

KEEPS_A_SESSION = """
import sys, time, ullage
with ullage.connect() as client, client.session("held", resreq="cpu=0.1,mem=256m") as session:
    future = session.submit(time.sleep, 600)
    sys.stdin.read()
    future.cancel()
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with LiveServer(tmp_path_factory.mktemp("exec") / "home", "--gpus=4") as server:
        yield Shell(server)
    assert server.leftovers() == []


@pytest.fixture(scope="module")
def task(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A session whose program runs in a directory of its own, with a variable of its own and a card."""
    place = tmp_path_factory.mktemp("place")
    return shell.submitted("--gpus=1", "-e", "COLOUR=red", "--", "sleep", "86401", cwd=place)


def test_output_and_errors_come_apart_and_the_exit_code_is_that_of_the_program(shell: Shell, task: str) -> None:
    done = shell.run("exec", task, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_it_has_the_environment_the_cards_and_the_directory_of_the_task(shell: Shell, task: str) -> None:
    show = 'echo "$COLOUR $ULLAGE_SESSION $ULLAGE_TASK $MINE [$CUDA_VISIBLE_DEVICES] ${ULLAGE_WORKER_SECRET-none}"; pwd'
    done = shell.run("exec", "-e", "MINE=1", task, "--", "sh", "-c", show)
    first, directory = done.stdout.decode().split("\n", 1)
    (pid,) = with_word("86401")
    own = dict(entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if entry)
    assert first == f"red {task} 1 1 [{own['CUDA_VISIBLE_DEVICES']}] none"
    assert Path(directory.strip()) == Path(f"/proc/{pid}/cwd").readlink()


def test_it_is_in_the_cgroups_of_the_task_and_on_its_cpus(shell: Shell, task: str) -> None:
    done = shell.run("exec", task, "--", "sh", "-c", "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status")
    (pid,) = with_word("86401")
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    cpus = next(line for line in status if line.startswith("Cpus_allowed_list"))
    assert done.stdout.decode() == Path(f"/proc/{pid}/cgroup").read_text() + cpus + "\n"


def test_its_input_is_passed_whole_and_comes_back_whole(shell: Shell, task: str) -> None:
    given = os.urandom(5_000_001)
    done = shell.run("exec", task, "--", "cat", given=given)
    assert (done.returncode, hashlib.sha256(done.stdout).digest()) == (0, hashlib.sha256(given).digest())


def test_a_program_that_reads_no_input_is_not_waited_for(shell: Shell, task: str) -> None:
    done = shell.run("exec", task, "--", "true", given=b"x" * 3_000_000)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_codes_of_programs_that_cannot_run_and_of_killed_ones(shell: Shell, task: str) -> None:
    missing = shell.run("exec", task, "--", "no-such-program")
    assert missing.returncode == 127
    assert missing.stderr.startswith(b"ullage: no-such-program: program not found; PATH is ")
    assert shell.run("exec", task, "--", "/tmp").returncode == 126  # a directory
    assert shell.run("exec", task, "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_a_task_that_does_not_run_is_refused_with_its_state(shell: Shell, task: str) -> None:
    waits = shell.run("submit", "-r", "cpu=0.1", "--after", f"ok:{task}", "--", "true").stdout.decode().strip()
    pending = shell.run("exec", waits, "--", "true")
    assert pending.returncode == 75
    assert f"task 1 of {waits} does not run: it is pending; `ullage why {waits}` says why" in pending.stderr.decode()
    shell.run("cancel", waits)
    ended = shell.run("exec", f"{waits}/1", "--", "true")
    assert f"task-not-running: task 1 of {waits} does not run: it has ended: cancelled" in ended.stderr.decode()
    assert b"task 7 of" in shell.run("exec", f"{task}/7", "--", "true").stderr
    assert shell.run("exec", "no-such-session", "--", "true").returncode == 2


def test_a_session_of_several_tasks_has_to_be_named_with_one(shell: Shell) -> None:
    session = shell.submitted("-a", "4,6", "--", "sh", "-c", "sleep 601")
    several = shell.run("exec", session, "--", "true")
    assert f"it has 2 tasks; name one of them, as in {session}/1" in several.stderr.decode()
    shown = shell.run("exec", f"{session}:4", "--", "sh", "-c", "echo $ULLAGE_ARRAY_INDEX")
    assert shown.stdout == b"4\n"
    shell.run("cancel", session)


def test_nothing_is_left_of_a_killed_client(shell: Shell, task: str, word: str) -> None:
    with shell.start("exec", task, "--", "sh", "-c", f"setsid sleep {word} & echo go; sleep {word}") as client:
        read_until(client.stdout, b"go")
        wait_until(lambda: len(with_word(word)) == 2, "both sleep")
        kill(client)
        wait_until(lambda: with_word(word) == [], "none is left")
        assert shell.state(task) == "running"


def test_nothing_is_left_of_a_killed_host(shell: Shell, task: str, word: str) -> None:
    script = f"setsid sleep {word} & echo go $$; sleep {word}"
    with shell.start("exec", task, "--", "sh", "-c", script) as client:
        program = int(read_until(client.stdout, b"\n").split()[1])
        wait_until(lambda: len(with_word(word)) == 2, "both sleep")
        os.kill(host_of(program), signal.SIGKILL)
        _, err = client.communicate()
        assert (client.returncode, err) == (125, b"ullage: its host was killed, and the program with it\n")
        wait_until(lambda: with_word(word) == [], "none is left")
        assert shell.state(task) == "running"


def test_a_program_that_ended_by_itself_may_leave_others_which_end_with_the_executor(shell: Shell, word: str) -> None:
    session = shell.submitted("--", "sleep", "602")
    done = shell.run("exec", session, "--", "sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & true")
    assert done.returncode == 0
    wait_until(lambda: len(with_word(word)) == 1, "the shell has left a program behind")
    shell.run("cancel", session)
    wait_until(lambda: with_word(word) == [], "it has ended with the executor")


def test_it_gets_the_signals_of_an_executor_that_ends(shell: Shell, word: str) -> None:
    session = shell.submitted("--", "sleep", "603")
    with shell.start("exec", session, "--", "sh", "-c", f"echo go; exec sleep {word}") as client:
        read_until(client.stdout, b"go")
        shell.run("cancel", session)
        client.communicate()
        assert client.returncode == 128 + signal.SIGTERM
    wait_until(lambda: shell.state(session) == "cancelled", "its end is known")
    assert shell.run("exec", session, "--", "true").returncode == 75


def test_what_ignores_signals_ends_with_its_executor_and_the_client_learns_why(shell: Shell, word: str) -> None:
    session = shell.submitted("--grace=1s", "--", "sh", "-c", "trap '' TERM; sleep 605; sleep 605")
    deaf = f"trap '' TERM HUP; echo go; sleep {word}; sleep {word}; sleep {word}"
    with shell.start("exec", session, "--", "sh", "-c", deaf) as client:
        read_until(client.stdout, b"go")
        shell.run("cancel", session)
        _, err = client.communicate()
        assert (client.returncode, err) == (125, b"ullage: its executor ended: stopped\n")


def test_a_signal_of_the_client_reaches_the_program_and_a_second_one_leaves_it(
    shell: Shell, task: str, word: str
) -> None:
    hears = f"trap 'echo got; exit 9' INT; echo go; sleep {word} & wait"
    with shell.start("exec", task, "--", "sh", "-c", hears) as client:
        read_until(client.stdout, b"go")
        client.send_signal(signal.SIGINT)
        out, _ = client.communicate()
        assert (client.returncode, out) == (9, b"got\n")
        for pid in with_word(word):
            os.kill(pid, signal.SIGKILL)
    with shell.start("exec", task, "--", "sh", "-c", f"trap '' INT; echo go; sleep {word} & wait") as deaf:
        read_until(deaf.stdout, b"go")
        wait_until(lambda: deaf.poll() is not None or bool(deaf.send_signal(signal.SIGINT)), "the client ends")
        assert deaf.returncode == 130
        wait_until(lambda: with_word(word) == [], "it is hung up")


def test_a_program_waits_while_its_client_does_not_read(shell: Shell, task: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    with shell.start("exec", task, "--", "sh", "-c", f"head -c 100000000 /dev/zero; touch {done}") as slow:
        read_until(slow.stdout, b"\0")
        for _ in range(3):  # the server has time for others meanwhile
            assert shell.run("exec", task, "--", "true").returncode == 0
        assert not done.exists()
        assert slow.stdout is not None
        count = 0
        while piece := slow.stdout.read(1 << 20):
            count += len(piece)
        assert slow.wait() == 0
        assert done.exists()
        assert count > 90_000_000


def test_nothing_is_left_of_a_killed_server(tmp_path: Path, word: str) -> None:
    server = LiveServer(tmp_path / "home")
    with server:
        shell = Shell(server)
        session = shell.submitted("--", "sleep", "604")
        with shell.start("exec", session, "--", "sh", "-c", f"setsid sleep {word} & echo go; sleep {word}") as client:
            read_until(client.stdout, b"go")
            server.kill()
            _, err = client.communicate()
            assert client.returncode == 69
            assert b"the connection to the server was lost; a server that ends, ends the program too" in err
            wait_until(lambda: with_word(word) == [], "none is left")
            wait_until(lambda: not server.leftovers(), "none is left")


def test_a_stream_is_asked_for_in_the_request(shell: Shell, task: str) -> None:
    with shell.server.client() as client:
        answer = client.post(f"/v1/sessions/{task}/tasks/1/exec")
        assert (answer.status_code, answer.json()["code"]) == (400, "upgrade-needed")
        refused = client.post(f"/v1/sessions/{task}/tasks/1/attach")
        assert (refused.status_code, refused.json()["code"]) == (409, "no-terminal")


def test_another_machine_runs_programs_over_tls_in_both_directions_at_once(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(f'[server]\ncert = "{tmp_path}/tls.pem"\nkey = "{tmp_path}/tls.key"\n')
    with LiveServer(home) as server:
        shell = Shell(server, SSL_CERT_FILE=str(certificates.ca_file))
        session = shell.submitted("--", "sleep", "606")
        shell.environment |= {"ULLAGE_ENDPOINT": server.url, "ULLAGE_TOKEN": server.token}
        given = os.urandom(5_000_001)
        done = shell.run("exec", session, "--", "cat", given=given)
        assert (done.returncode, hashlib.sha256(done.stdout).digest()) == (0, hashlib.sha256(given).digest())
        assert shell.run("exec", session, "--", "sh", "-c", "exit 6").returncode == 6


def test_a_server_that_ends_in_order_does_not_wait_for_clients(tmp_path: Path, word: str) -> None:
    with LiveServer(tmp_path / "home") as server:
        shell = Shell(server)
        session = shell.submitted("--", "sleep", "607")
        with shell.start("exec", session, "--", "sh", "-c", f"echo go; sleep {word}") as client:
            read_until(client.stdout, b"go")
            server.stop()
            assert client.wait() == 69
        assert server.leftovers() == []


def test_what_an_ended_program_has_left_behind_ends_when_the_executor_leaves_its_session(
    tmp_path: Path, word: str
) -> None:
    with LiveServer(tmp_path / "home") as server:
        shell = Shell(server)
        shell.environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            [sys.executable, "-c", KEEPS_A_SESSION], env=shell.environment, stdin=subprocess.PIPE
        ) as program:
            wait_until(lambda: shell.knows("held") and shell.state("held") == "running", "it runs")
            done = shell.run("exec", "held/1", "--", "sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & true")
            assert done.returncode == 0, done.stderr
            wait_until(lambda: len(with_word(word)) == 1, "the shell has left a program behind")
            program.communicate()
        wait_until(lambda: with_word(word) == [], "it is killed")
