"""Programs with terminals, on real ones: `ullage exec -t`, `ullage run --pty` and `ullage attach`."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer, wait_until
from tests.system.terminals import Screen, Shell, host_of, with_word


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with LiveServer(tmp_path_factory.mktemp("terminals") / "home", "--gpus=4") as server:
        yield Shell(server)
    assert server.leftovers() == []


@pytest.fixture(scope="module")
def task(shell: Shell) -> str:
    return shell.submitted("--", "sleep", "600")


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
    assert b"here it is none: run this verb in a terminal" in done.stderr


def test_a_program_may_close_its_terminal_and_open_it_again(shell: Shell, task: str) -> None:
    script = "exec </dev/null >/dev/null 2>&1; sleep 0.3; exec </dev/tty >/dev/tty; read word; echo got $word"
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", script) as screen:
        screen.type(b"typed\r")
        screen.until(b"got typed\r\n")
        assert screen.close() == 0


def test_large_output_arrives_whole_on_a_terminal(shell: Shell, task: str) -> None:
    with Screen(shell, "exec", "-t", task, "--", "sh", "-c", "seq 100000; echo end") as screen:
        shown = screen.until(b"end\r\n")
        assert shown == b"".join(b"%d\r\n" % number for number in range(1, 100001)) + b"end\r\n"
        assert screen.close() == 0


def test_a_program_that_is_not_there_is_said_on_the_terminal(shell: Shell, task: str) -> None:
    with Screen(shell, "exec", "-it", task, "--", "no-such-program") as screen:
        assert screen.close() == 127
        assert screen.shown.startswith(b"ullage: no-such-program: program not found; PATH is ")


# --- run --pty and attach ---


def prompt() -> bytes:
    return b"# " if os.geteuid() == 0 else b"$ "


def run_pty(name: str, *words: str) -> list[str]:
    return ["run", "--pty", "--cpus=0.1", "--mem=64m", "-n", name, "--", *words]


def test_a_shell_runs_as_a_task_and_its_exit_code_is_passed_on(shell: Shell) -> None:
    with Screen(shell, *run_pty("codes", "sh", "-i")) as screen:
        screen.until(prompt())
        screen.type(b"echo $ULLAGE_TASK; stty size; exit 5\r")
        assert screen.until(b"33 99\r\n").endswith(b"\r\n1\r\n33 99\r\n")
        assert screen.close() == 5
        assert screen.is_as_before
    assert shell.state("codes") == "failed"
    assert b"33 99" in shell.run("logs", "codes").stdout


def test_a_program_goes_on_without_the_client_that_detached_and_another_one_returns(shell: Shell) -> None:
    with Screen(shell, *run_pty("kept", "sh", "-i")) as screen:
        screen.until(prompt())
        screen.type(b"KEPT=yes\r~.")
        assert screen.close() == 0
        assert b"detached; `ullage attach kept/1` returns to it" in screen.shown
        assert screen.is_as_before
    with Screen(shell, "attach", "kept", rows=20, columns=70) as screen:
        screen.type(b"echo $KEPT; stty size\r")
        screen.until(b"yes\r\n20 70\r\n")
        screen.type(b"exit\r")
        assert screen.close() == 0
        assert screen.is_as_before
    assert shell.run("attach", "kept").returncode == 2  # the input of that one is no terminal


def test_a_client_that_attaches_takes_the_program_over(shell: Shell) -> None:
    with Screen(shell, *run_pty("taken", "sh", "-i")) as first:
        first.until(prompt())
        with Screen(shell, "attach", "taken") as second:
            second.type(b"echo mine\r")
            second.until(b"\nmine\r\n")
            assert first.close() == 125
            assert b"another client has attached to taken/1, which goes on" in first.shown
            assert first.is_as_before
            second.type(b"exit 3\r")
            assert second.close() == 3


def test_a_program_whose_client_was_killed_waits_for_another_one(shell: Shell) -> None:
    with Screen(shell, *run_pty("lost", "sh", "-i")) as screen:
        screen.until(prompt())
        screen.process.kill()
        with Screen(shell, "attach", "lost") as other:
            other.type(b"echo here\r")
            other.until(b"\nhere\r\n")
            other.type(b"exit\r")
            assert other.close() == 0


def test_a_program_whose_client_does_not_return_gets_sighup(shell: Shell, word: str) -> None:
    with Screen(shell, *run_pty("alone", "sh", "-c", f"sleep {word} & echo go; wait")) as screen:
        screen.until(b"go")
        screen.process.kill()
        wait_until(lambda: shell.state("alone") == "failed", "it has ended")
        assert with_word(word) == []
    assert b"ullage: its client is gone, so it gets SIGHUP" in shell.run("logs", "alone").stderr
    with Screen(shell, "attach", "alone") as screen:
        assert screen.close() == 75
        assert b"task 1 of alone does not run: it has ended: failed" in screen.shown


def test_a_killed_host_takes_its_program_along(shell: Shell, word: str) -> None:
    with Screen(shell, *run_pty("hostless", "sh", "-c", f"echo go $$; sleep {word}; true")) as screen:
        screen.until(b"go ")
        program = int(screen.until(b"\r\n"))
        os.kill(host_of(program), signal.SIGKILL)
        assert screen.close() == 125
        assert b"its host was killed, and the program with it" in screen.shown
        wait_until(lambda: with_word(word) == [], "none is left")


def test_a_cancelled_program_ends_and_its_client_learns_it(shell: Shell, word: str) -> None:
    with Screen(shell, *run_pty("cancelled", "sh", "-i")) as screen:
        screen.until(prompt())
        shell.run("cancel", "cancelled")
        assert screen.close() == 143
        assert b"cancelled" in screen.shown
        assert screen.is_as_before


@pytest.mark.parametrize(("name", "limit", "before"), [("USR1", "6s", "2s"), ("TERM", "6s", "3s")])
def test_a_program_with_a_terminal_goes_on_after_a_signal_before_its_time_limit(
    shell: Shell, word: str, name: str, limit: str, before: str
) -> None:
    words = ["run", "--pty", "--cpus=0.1", "--mem=64m", "-t", limit, "--signal", f"{name}@{before}", "--"]
    with Screen(shell, *words, "sh", "-c", f"trap 'echo saved' {name}; sleep {word} & wait; wait") as screen:
        assert screen.close() == 124
        assert b"saved\r\n" in screen.shown
        assert screen.is_as_before


def test_ctrl_c_cancels_a_program_that_waits(shell: Shell, task: str) -> None:
    with Screen(shell, "run", "--pty", "-n", "waits", "--after", f"ok:{task}", "--", "sh") as screen:
        screen.until(b"waits waits:")
        screen.type(b"\x03")
        assert screen.close() == 130
    assert shell.state("waits") == "cancelled"


def test_only_a_program_that_has_a_terminal_can_be_attached_to(shell: Shell, task: str) -> None:
    with Screen(shell, "attach", task) as screen:
        assert screen.close() == 75
        assert (
            f"task 1 of {task} has no terminal: `ullage run --pty` starts a program with one".encode() in screen.shown
        )


def test_a_program_starts_anew_with_its_first_client_after_a_server_was_killed(tmp_path: Path, word: str) -> None:
    server = LiveServer(tmp_path / "home")
    with server:
        shell = Shell(server)
        with Screen(shell, *run_pty("again", "sh", "-c", f"echo $$ $(stty size); sleep {word}")) as screen:
            screen.until(b"33 99")
            server.kill()
            assert screen.close() == 69
            assert b"the connection to the server was lost" in screen.shown
            assert screen.is_as_before
        wait_until(lambda: not with_word(word) and not server.leftovers(), "none is left")
        server.start()
        wait_until(lambda: shell.state("again") == "running", "it is handed out again")
        with Screen(shell, "attach", "again", rows=20, columns=70) as screen:
            screen.until(b"20 70")
            wait_until(lambda: bool(with_word(word)), "the shell has started what Ctrl-C ends")
            screen.type(b"\x03")
            assert screen.close() == 130
    assert server.leftovers() == []


# --- a streamed input ---


def test_a_long_input_is_streamed_to_a_program(shell: Shell) -> None:
    given = os.urandom((16 << 20) + 3_000_001)
    done = shell.run("run", "--cpus=0.1", "--mem=64m", "--stdin", "--", "sh", "-c", "sha256sum; exit 4", given=given)
    assert (done.returncode, done.stdout.split()[0].decode()) == (4, hashlib.sha256(given).hexdigest())
    assert b"was not sent" not in done.stderr


def test_a_program_need_not_read_a_streamed_input_to_its_end(shell: Shell) -> None:
    given = b"first line\n" * 2_500_000
    done = shell.run("run", "--cpus=0.1", "--mem=64m", "--stdin", "--", "head", "-n", "1", given=given)
    assert (done.returncode, done.stdout) == (0, b"first line\n")
    assert b"was not sent" not in done.stderr


def test_a_program_never_takes_a_part_of_its_input_for_the_whole(shell: Shell, tmp_path: Path) -> None:
    script = f"cat >/dev/null; touch {tmp_path}/whole"
    words = ["run", "--cpus=0.1", "--mem=64m", "-n", "part", "--stdin", "--", "sh", "-c", script]
    with shell.start(*words) as client:
        assert client.stdin is not None
        client.stdin.write(b"x" * (20 << 20))
        client.stdin.flush()
        wait_until(lambda: shell.knows("part") and shell.state("part") == "running", "it runs")
        wait_until(lambda: with_word(script) != [], "it reads")
        client.kill()
        wait_until(lambda: shell.state("part") == "failed", "it is hung up")
    assert not (tmp_path / "whole").exists()
