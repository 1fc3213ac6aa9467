"""Programs with terminals, on real ones: `ullage exec -t`, `ullage run --pty` and `ullage attach`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.system.live_server import LiveServer, wait_until
from tests.system.terminals import Screen, Shell, with_word


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with LiveServer(tmp_path_factory.mktemp("terminals") / "home", "--gpus=4", NUMBA_DISABLE_JIT="1") as server:
        yield Shell(server)
    assert server.leftovers() == []


@pytest.fixture(scope="module")
def task(shell: Shell) -> str:
    return shell.submitted("--", "sleep", "600")


@pytest.fixture
def word(request: pytest.FixtureRequest) -> Iterator[str]:
    """A word that only the processes of one test have in their command lines: seconds of sleep(1)."""
    word = f"{600 + abs(hash(request.node.name)) % 10**6}"
    yield word
    assert with_word(word) == []


def test_a_program_has_a_terminal_of_the_size_of_that_of_its_client(shell: Shell, task: str) -> None:
    script = "stty size; tty; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done"
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", script) as screen:
        assert screen.until(b"ready").startswith(b"33 99\r\n/dev/pts/")
        screen.resize(40, 120)
        screen.until(b"40 120")
        assert screen.close() == 4
        assert screen.is_as_before


def test_keys_and_their_signals_reach_a_shell_and_what_it_runs(shell: Shell, task: str, word: str) -> None:
    with Screen(shell, "exec", "-t", task, "--", "sh", "-i") as screen:
        screen.until(b"$ " if os.geteuid() else b"# ")
        screen.type(b"echo $((6 * 7))\r")
        screen.until(b"42\r\n")
        screen.type(f"sleep {word}\r".encode())
        wait_until(lambda: len(with_word(word)) == 1, "it sleeps")
        screen.type(b"\x03")
        wait_until(lambda: with_word(word) == [], "Ctrl-C ends what the shell runs, and not the shell")
        screen.type(b"exit 7\r")
        assert screen.close() == 7
        assert screen.is_as_before


def test_the_detach_keys_leave_a_program_beside_a_task_which_ends_then(shell: Shell, task: str, word: str) -> None:
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", f"echo ready; sleep {word}; sleep {word}") as screen:
        screen.until(b"ready")
        screen.type(b"~.")
        assert screen.close() == 128 + signal.SIGHUP
        assert screen.is_as_before
        wait_until(lambda: with_word(word) == [], "it is hung up")


def test_a_terminal_that_closes_hangs_the_program_up(shell: Shell, task: str, word: str) -> None:
    script = f"echo ready; sleep {word}; sleep {word}"
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", script) as screen:
        screen.until(b"ready")
        wait_until(lambda: with_word(word) != [], "it sleeps")
        screen.process.send_signal(signal.SIGHUP)
        screen.close()
        assert screen.is_as_before
        wait_until(lambda: with_word(word) == [], "it is hung up")


def test_a_terminal_is_refused_where_the_input_is_none(shell: Shell, task: str) -> None:
    done = shell.run("exec", "-t", task, "--", "sh")
    assert done.returncode == 2
    assert b"a terminal is passed on, and the standard input is none" in done.stderr


def test_large_output_arrives_whole_on_a_terminal(shell: Shell, task: str) -> None:
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", "seq 100000; echo end") as screen:
        shown = screen.until(b"end\r\n")
        assert shown == b"".join(b"%d\r\n" % number for number in range(1, 100001)) + b"end\r\n"
        assert screen.close() == 0


def test_a_program_that_is_not_there_is_said_on_the_terminal(shell: Shell, task: str) -> None:
    with Screen(shell, "exec", "-it", task, "--", "no-such-program") as screen:
        assert screen.close() == 127
        assert screen.shown.startswith(b"ullage: no-such-program: program not found; PATH is ")
