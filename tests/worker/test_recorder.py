"""What functions print is the log of their task: from Python, from C, and from child processes."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from tests.worker.test_worker_process import Bench, call, ready
from ullage.wire import frames

LARGE = 3_000_000
"""Bytes; more than a pipe holds."""


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[Bench]:
    yield from ready(tmp_path, "function")


def log(bench: Bench, task: int, stream: str = "out") -> bytes:
    return (bench.logs / f"s/{task}.{stream}").read_bytes()


def test_prints_of_every_task_of_a_batch_are_its_own_log(functions: Bench) -> None:
    functions.outcomes(*[call(task, print, f"of {task}") for task in range(1, 200)])
    assert [log(functions, task) for task in range(1, 200)] == [f"of {task}\n".encode() for task in range(1, 200)]


def write(text: str) -> None:
    sys.stdout.write(text)


def test_an_unfinished_line_belongs_to_its_task(functions: Bench) -> None:
    functions.outcomes(*[call(task, write, f"{task}") for task in range(1, 20)])
    assert [log(functions, task) for task in range(1, 20)] == [str(task).encode() for task in range(1, 20)]


def print_in_every_way() -> None:
    print("print")  # noqa: T201  # its purpose
    logging.getLogger("a.b").warning("logging")
    os.write(1, b"descriptor\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"C")
    libc.fflush(None)
    subprocess.run(["sh", "-c", "echo child; echo error >&2"], check=True)
    if os.fork() == 0:
        os.write(1, b"fork\n")
        os._exit(0)
    os.wait()


def test_logging_c_and_child_processes_print_to_the_log_of_the_task(functions: Bench) -> None:
    assert functions.outcomes(call(1, print_in_every_way))[0].code == 0
    assert log(functions, 1) == b"print\ndescriptor\nC\nchild\nfork\n"
    assert log(functions, 1, "err") == b"logging\nerror\n"


def write_with_the_lock_of_the_interpreter(count: int) -> int:
    written: int = ctypes.PyDLL(None).write(1, b"x" * count, count)
    return written


def test_code_that_holds_the_lock_of_the_interpreter_can_print_more_than_a_pipe_holds(functions: Bench) -> None:
    assert functions.outcomes(call(1, write_with_the_lock_of_the_interpreter, LARGE))[0].code == 0
    assert log(functions, 1) == b"x" * LARGE


def test_a_task_that_prints_nothing_has_no_log(functions: Bench) -> None:
    functions.outcomes(call(1, abs, 1), call(2, print, "two"), call(3, abs, 1))
    assert [path.name for path in (functions.logs / "s").iterdir()] == ["2.out"]


def test_each_session_has_its_own_logs(functions: Bench) -> None:
    for session in ("a", "b", "a"):
        functions.send(frames.Leave(), frames.Enter(session))
        functions.next(frames.Left)
        functions.next(frames.Entered)
        functions.outcomes(call(1, print, session))
    assert [(functions.logs / f"{name}/1.out").read_text() for name in "ab"] == ["a\na\n", "b\n"]


def print_and_die() -> None:
    print("last words")  # noqa: T201  # its purpose
    os._exit(3)


def test_what_a_dying_worker_has_printed_is_kept(functions: Bench) -> None:
    functions.send(frames.Run([call(1, print_and_die)]))
    assert functions.process.wait(60) == 3
    assert functions.connection.recv(1) == b""
    waited = functions.logs / "s/1.out"
    while not (waited.exists() and waited.read_bytes()):
        pass
    assert log(functions, 1) == b"last words\n"


def close_output() -> None:
    os.closerange(1, 3)


def test_a_function_that_closes_its_output_harms_no_later_task(functions: Bench) -> None:
    outcomes = functions.outcomes(call(1, close_output), call(2, abs, -2))
    assert [outcome.code for outcome in outcomes] == [0, 0]


def print_in_the_background() -> None:
    subprocess.Popen(["sh", "-c", "while echo more; do :; done"])


def test_a_process_that_prints_without_end_holds_no_later_task(functions: Bench) -> None:
    outcomes = functions.outcomes(call(1, print_in_the_background), call(2, abs, -2))
    assert [outcome.code for outcome in outcomes] == [0, 0]
