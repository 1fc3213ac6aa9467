"""Signals that a worker passes on to the task that runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from tests.system.live_server import wait_until
from tests.worker.test_worker_process import Bench, call, command, ready
from ullage.wire import frames

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

USR1 = signal.SIGUSR1.value


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[Bench]:
    yield from ready(tmp_path, "function")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Bench]:
    yield from ready(tmp_path, "command")


def log(bench: Bench, task: int, stream: str) -> str:
    path = bench.logs / f"s/{task}.{stream}"
    return path.read_text() if path.exists() else ""


SAVES = "trap 'echo saved; exit 0' USR1; echo ready; printf unfinished >&2; while :; do sleep 0.05; done"


def test_a_program_gets_the_signal_of_its_claim_and_its_log_says_why(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", SAVES))
    wait_until(lambda: log(commands, 1, "out") == "ready\n", "the program handles the signal")
    commands.send(frames.Signal(99, USR1, "of another claim"), frames.Signal(101, USR1, "soon"))
    assert commands.outcome().code == 0
    assert log(commands, 1, "out") == "ready\nsaved\n"
    assert "unfinished\nullage: soon\n" in log(commands, 1, "err")
    assert "another" not in log(commands, 1, "err")


def test_a_program_that_closed_its_output_has_the_line_too(commands: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"trap 'exit 7' USR1; exec >&- 2>&-; touch {gate}; while :; do sleep 0.05; done"
    commands.send(command(1, "sh", "-c", script))
    wait_until(gate.exists, "the program has closed its output")
    commands.send(frames.Signal(101, USR1, "soon"))
    assert commands.outcome().code == 7
    assert log(commands, 1, "err") == "ullage: soon\n"


def test_a_program_without_a_handler_ends_by_the_signal_and_its_worker_goes_on(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", "echo ready; exec sleep 600"))
    wait_until(lambda: log(commands, 1, "out") == "ready\n", "the program runs")
    commands.send(frames.Signal(101, signal.SIGTERM.value, "soon"))
    outcome = commands.outcome()
    assert outcome.code == 128 + signal.SIGTERM
    commands.send(frames.Signal(101, USR1, "too late"), command(2, "echo", "next"))
    assert commands.outcome().code == 0
    assert "late" not in log(commands, 1, "err") + log(commands, 2, "err")


def wait_for_signal(number: int) -> str:
    caught: list[int] = []
    signal.signal(number, lambda number, _: caught.append(number))
    print("ready")  # noqa: T201  # its purpose
    while not caught:
        signal.pause()
    return signal.Signals(caught[0]).name


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_a_function_with_a_handler_gets_the_signal(functions: Bench, number: signal.Signals) -> None:
    functions.send(frames.Run([call(1, wait_for_signal, number.value)]))
    wait_until(lambda: log(functions, 1, "out") == "ready\n", "the function handles the signal")
    functions.send(frames.Signal(101, number.value, "soon"))
    assert cloudpickle.loads(functions.outcome().output or b"") == number.name
    assert log(functions, 1, "err") == "ullage: soon\n"


def wait_for_file(path: Path) -> str:
    import time  # noqa: PLC0415  # it runs in a worker

    print("ready")  # noqa: T201  # its purpose
    while not path.exists():
        time.sleep(0.01)
    return "done"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_a_function_without_a_handler_is_spared(functions: Bench, tmp_path: Path, number: signal.Signals) -> None:
    functions.send(frames.Run([call(1, wait_for_file, tmp_path / "gate")]))
    wait_until(lambda: log(functions, 1, "out") == "ready\n", "the function runs")
    functions.send(frames.Signal(101, number.value, "soon"))
    wait_until(lambda: log(functions, 1, "err") != "", "the log says so")
    (tmp_path / "gate").touch()
    assert cloudpickle.loads(functions.outcome().output or b"") == "done"
    assert log(functions, 1, "err") == "ullage: soon (not sent: the task has no handler for it)\n"


def test_a_signal_that_arrives_with_its_task_reaches_it(functions: Bench, tmp_path: Path) -> None:
    """The main thread of the worker has read it, before the task ran."""
    run = frames.Run([call(1, wait_for_file, tmp_path / "gate")])
    functions.connection.sendall(frames.encode(run) + frames.encode(frames.Signal(101, USR1, "soon")))
    wait_until(lambda: log(functions, 1, "err") != "", "the log says that it came")
    (tmp_path / "gate").touch()
    assert cloudpickle.loads(functions.outcome().output or b"") == "done"
