"""Real worker processes, with this test as their engine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import msgspec
import pytest

from ullage.model.task import MAX_SHARED_DATA
from ullage.wire import frames

F = TypeVar("F", bound=frames.FromWorker)


class Bench:
    """The engine's end of one worker."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.logs = directory / "logs"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / "sock"))
        self._listener.listen(1)
        self._listener.settimeout(60)
        self._reader = frames.FrameReader.from_worker()
        self._reader.limit = frames.MAX_FRAME
        self._frames: deque[frames.FromWorker] = deque()
        environment = {
            "PATH": os.environ["PATH"],
            "ULLAGE_WORKER_SOCKET": str(directory / "sock"),
            "ULLAGE_EXECUTOR": "e-1",
            "ULLAGE_WORKER_SECRET": "of this test",
            "ULLAGE_TASK_LOGS": str(self.logs),
        }
        self.process = subprocess.Popen([sys.executable, "-m", "ullage.worker", kind], env=environment, cwd=directory)
        self.connection, _ = self._listener.accept()
        self.connection.settimeout(60)

    def close(self) -> None:
        self.connection.close()
        self._listener.close()
        self.process.kill()
        self.process.wait()

    def send(self, *orders: frames.ToWorker) -> None:
        for order in orders:
            self.connection.sendall(frames.encode(order))

    def next(self, kind: type[F]) -> F:
        """The next frame, which must be of this kind."""
        frame = self.any()
        assert isinstance(frame, kind), frame
        return frame

    def any(self) -> frames.FromWorker:
        """The next frame."""
        while not self._frames:
            data = self.connection.recv(1 << 16)
            assert data, "the worker hung up"
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()

    def outcomes(self, *orders: frames.HandOut) -> list[frames.Outcome]:
        """Run tasks to the last one; those given back, as on a busy machine any may be, once more."""
        self.send(frames.Run(list(orders)))
        found: list[frames.Outcome] = []
        while len(found) < len(orders):
            frame = self.any()
            if isinstance(frame, frames.Done):
                found += frame.outcomes
                continue
            assert isinstance(frame, frames.GaveBack)
            self.send(frames.Run([order for order in orders if order.claim in frame.claims]))
        return found

    def outcome(self) -> frames.Outcome:
        """The next outcome, which must come alone."""
        done = self.next(frames.Done)
        assert len(done.outcomes) == 1
        return done.outcomes[0]


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[Bench]:
    yield from ready(tmp_path, "function")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Bench]:
    yield from ready(tmp_path, "command")


def ready(directory: Path, kind: str) -> Iterator[Bench]:
    """A worker in session `s`."""
    bench = Bench(directory, kind)
    try:
        hello = bench.next(frames.Hello)
        assert hello == frames.Hello(frames.PROTOCOL, "e-1", "of this test", bench.process.pid)
        bench.send(frames.Enter("s"))
        assert bench.next(frames.Entered) == frames.Entered(0)
        yield bench
    finally:
        bench.close()


def call(task: int, function: Callable[..., object], *arguments: object) -> frames.HandOut:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    return frames.HandOut(task, 100 + task, cloudpickle.dumps((function, arguments, {})))


def command(task: int, *argv: str, **rest: Any) -> frames.Run:
    return frames.Run([frames.HandOut(task, 100 + task, msgspec.msgpack.encode({"argv": argv, **rest}))])


# --- functions ------------------------------------------------------------------------------------


def test_every_task_of_a_batch_comes_back(functions: Bench) -> None:
    outcomes = functions.outcomes(*[call(task, abs, -task) for task in range(1, 100)])
    assert {outcome.claim: cloudpickle.loads(outcome.output or b"") for outcome in outcomes} == {
        100 + task: task for task in range(1, 100)
    }


def test_the_secret_is_gone_before_any_task(functions: Bench) -> None:
    functions.send(frames.Run([call(1, lambda: sorted(dict(os.environ)))]))
    assert "ULLAGE_WORKER_SECRET" not in cloudpickle.loads(functions.outcome().output or b"")


@pytest.mark.parametrize(
    ("raised", "first_line"),
    [
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: os.environ["MISSING"], "KeyError: 'MISSING'"),
        (lambda: (_ for _ in ()).throw(KeyboardInterrupt), "KeyboardInterrupt"),
        (lambda: (_ for _ in ()).throw(asyncio.CancelledError), "CancelledError"),
    ],
)
def test_whatever_a_task_raises_fails_only_the_task(
    functions: Bench, raised: Callable[[], object], first_line: str
) -> None:
    outcomes = functions.outcomes(call(1, raised), call(2, abs, -2))
    assert (outcomes[0].code, outcomes[0].message.splitlines()[0]) == (1, first_line)
    assert outcomes[1].code == 0
    error = cloudpickle.loads(outcomes[0].output or b"")
    assert type(error).__name__ == first_line.split(":", maxsplit=1)[0]


def test_an_exception_comes_back_with_the_workers_traceback(functions: Bench) -> None:
    def fail() -> None:
        raise ValueError("a" * 100_000)

    functions.send(frames.Run([call(1, fail)]))
    outcome = functions.outcome()
    assert len(outcome.message.encode()) <= 64 * 1024
    error = cloudpickle.loads(outcome.output or b"")
    assert isinstance(error, ValueError)
    assert "In the worker:\nTraceback" in error.__notes__[0]


def test_an_exception_that_cannot_be_pickled_leaves_its_text(functions: Bench) -> None:
    def fail() -> None:
        class OddError(Exception):
            def __init__(self) -> None:
                super().__init__("odd")
                self.lock = threading.Lock()

        raise OddError

    functions.send(frames.Run([call(1, fail)]))
    outcome = functions.outcome()
    assert outcome.output is None
    assert outcome.message.startswith("OddError: odd\n")


def test_a_result_that_cannot_be_pickled_fails_the_task(functions: Bench) -> None:
    functions.send(frames.Run([call(1, threading.Lock)]))
    outcome = functions.outcome()
    assert outcome.code == 1
    assert "cannot pickle" in outcome.message


def test_shared_functions_are_kept_up_to_a_number(functions: Bench) -> None:
    def run(shared_id: int, shared: bytes | None) -> frames.Outcome:
        functions.send(frames.Run([frames.HandOut(1, 1, cloudpickle.dumps(((), {})), shared_id, shared)]))
        return functions.outcome()

    for number in range(MAX_SHARED_DATA + 1):
        shared = cloudpickle.dumps(lambda number=number: number)
        assert cloudpickle.loads(run(number, shared).output or b"") == number
    assert cloudpickle.loads(run(MAX_SHARED_DATA, None).output or b"") == MAX_SHARED_DATA
    assert cloudpickle.loads(run(1, None).output or b"") == 1
    assert "(shared data 0) did not reach this executor" in run(0, None).message


def test_shared_data_of_a_task_given_back_stays(functions: Bench, tmp_path: Path) -> None:
    empty = cloudpickle.dumps(((), {}))
    functions.send(frames.Run([call(1, wait_for, str(tmp_path / "gate"))]))
    functions.send(frames.Run([frames.HandOut(2, 2, empty, 5, cloudpickle.dumps(lambda: "kept"))]))
    assert functions.next(frames.GaveBack).claims == [2]
    (tmp_path / "gate").touch()
    functions.outcome()
    functions.send(frames.Run([frames.HandOut(2, 3, empty, 5)]))
    assert cloudpickle.loads(functions.outcome().output or b"") == "kept"


def test_leaving_forgets_shared_functions(functions: Bench) -> None:
    empty = cloudpickle.dumps(((), {}))
    for session, text in (("a", "of a"), ("b", "of b")):
        functions.send(frames.Leave(), frames.Enter(session))
        functions.next(frames.Left)
        functions.next(frames.Entered)
        shared = cloudpickle.dumps(lambda text=text: text)
        functions.send(frames.Run([frames.HandOut(1, 1, empty, 1, shared)]))
        assert cloudpickle.loads(functions.outcome().output or b"") == text


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.001)


def test_a_leave_behind_a_long_task_waits_for_it(functions: Bench, tmp_path: Path) -> None:
    functions.send(frames.Run([call(1, wait_for, str(tmp_path / "gate")), call(2, abs, 1)]))
    assert functions.next(frames.GaveBack).claims == [102]
    functions.send(frames.Leave())
    (tmp_path / "gate").touch()
    assert functions.outcome().claim == 101
    functions.next(frames.Left)


def test_a_short_task_after_a_long_one_is_run(functions: Bench, tmp_path: Path) -> None:
    for number in range(3):
        gate = tmp_path / f"gate{number}"
        functions.send(frames.Run([call(1, wait_for, str(gate)), call(2, abs, 1)]))
        functions.next(frames.GaveBack)
        gate.touch()
        assert functions.outcome().claim == 101
        functions.send(frames.Run([call(2, abs, 1)]))
        assert functions.outcome().claim == 102


def test_the_end_of_the_stream_ends_a_worker_even_in_a_task(functions: Bench) -> None:
    functions.send(frames.Run([call(1, time.sleep, 3600), call(2, abs, 1)]))
    functions.next(frames.GaveBack)
    functions.connection.close()
    assert functions.process.wait(60) == 0


def test_sigterm_ends_an_idle_worker(functions: Bench) -> None:
    functions.process.terminate()
    assert functions.process.wait(60) == 0


def test_sigterm_interrupts_a_task(functions: Bench, tmp_path: Path) -> None:
    def interrupted() -> None:
        try:
            Path("begun").touch()
            time.sleep(3600)
        except KeyboardInterrupt as stop:
            Path("stop").write_text(type(stop).__name__)
            raise

    functions.send(frames.Run([call(1, interrupted), call(2, abs, 1)]))
    assert functions.next(frames.GaveBack).claims == [102]
    while not (tmp_path / "begun").exists():
        time.sleep(0.001)
    functions.process.terminate()
    assert functions.process.wait(60) == 0
    assert (tmp_path / "stop").read_text() == "Stopped"
    assert functions.connection.recv(1) == b""


# --- commands -------------------------------------------------------------------------------------


def test_a_program_runs_with_arguments_directory_environment_and_input(commands: Bench, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    text = 'pwd; echo $A-$ULLAGE_EXECUTOR; cat; echo grüße >&2; echo "$1"'
    commands.send(
        command(7, "sh", "-c", text, "sh", "a b", cwd=str(tmp_path / "there"), env={"A": "b"}, stdin=b"given\n")
    )
    outcome = commands.outcome()
    assert (outcome.code, outcome.message) == (0, "")
    ended = msgspec.msgpack.decode(outcome.output or b"")
    assert (ended["exit_code"], ended["signal"]) == (0, None)
    assert ended["seconds"] > 0
    assert ended["max_rss_bytes"] > 100_000
    assert (commands.logs / "s/7.out").read_text() == f"{tmp_path}/there\nb-e-1\ngiven\na b\n"
    assert (commands.logs / "s/7.err").read_text() == "grüße\n"


def test_a_program_finds_its_session_and_task(commands: Bench) -> None:
    outer = {"ULLAGE_SESSION": "outer", "ULLAGE_TASK": "1"}  # as of an environment that is passed on
    commands.send(command(7, "sh", "-c", "echo $ULLAGE_SESSION/$ULLAGE_TASK", env=outer))
    commands.outcome()
    assert (commands.logs / "s/7.out").read_text() == "s/7\n"


def test_a_program_cannot_be_given_other_cards_than_its_executor_has(commands: Bench) -> None:
    # As when a whole environment is passed on from a shell of another executor.
    forged = {"ULLAGE_EXECUTOR": "e-other", "ULLAGE_GPU_FRACTION": "1", "CUDA_LAUNCH_BLOCKING": "1"}
    commands.send(command(1, "sh", "-c", "echo $ULLAGE_EXECUTOR-$CUDA_LAUNCH_BLOCKING", env=forged))
    commands.outcome()
    assert (commands.logs / "s/1.out").read_text() == "e-1-1\n"


def test_a_second_attempt_appends_to_the_log(commands: Bench) -> None:
    for _ in range(2):
        commands.send(command(1, "echo", "again"))
        commands.outcome()
    assert (commands.logs / "s/1.out").read_text() == "again\nagain\n"


def test_a_program_prints_into_pipes_and_has_no_file_to_let_grow(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", "test -p /dev/stdout && test -p /dev/stderr"))
    assert commands.outcome().code == 0


def test_all_that_a_program_printed_is_in_its_log_when_its_end_is_reported(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", "head -c 3000000 /dev/zero; echo last"))
    commands.outcome()
    printed = (commands.logs / "s/1.out").read_bytes()
    assert (len(printed), printed[-5:]) == (3_000_005, b"last\n")


def test_a_background_process_of_a_program_goes_on_printing(commands: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = f"( while ! test -e {gate}; do sleep 0.01; done; head -c 300000 /dev/zero; echo late ) & echo early"
    commands.send(command(1, "sh", "-c", text))
    commands.outcome()
    log = commands.logs / "s/1.out"
    assert log.read_bytes() == b"early\n"
    gate.touch()
    while not log.read_bytes().endswith(b"late\n"):
        time.sleep(0.001)
    assert log.stat().st_size == len("early\n") + 300_000 + len("late\n")


def test_a_background_program_that_never_stops_printing_does_not_keep_its_task(commands: Bench, tmp_path: Path) -> None:
    commands.send(command(1, "sh", "-c", "yes & echo $! > pid"))
    assert commands.outcome().code == 0
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_the_logs_of_a_session_are_in_the_directory_that_the_engine_names(commands: Bench) -> None:
    commands.send(frames.Leave(), frames.Enter("s", logs="s@7"), command(1, "echo", "here"))
    commands.next(frames.Left)
    commands.next(frames.Entered)
    commands.outcome()
    assert (commands.logs / "s@7/1.out").read_text() == "here\n"


def test_an_exit_code_is_the_tasks_code(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", "exit 3"))
    outcome = commands.outcome()
    assert (outcome.code, outcome.message) == (3, "sh: exit code 3")
    assert msgspec.msgpack.decode(outcome.output or b"")["exit_code"] == 3


def test_a_program_ended_by_a_signal(commands: Bench) -> None:
    commands.send(command(1, "sh", "-c", "kill -SEGV $$"))
    outcome = commands.outcome()
    assert (outcome.code, outcome.message) == (139, "sh: killed by SIGSEGV")
    assert msgspec.msgpack.decode(outcome.output or b"")["signal"] == 11


@pytest.mark.parametrize(
    ("argv", "rest", "code", "text"),
    [
        (("no-such-program",), {}, 127, "no-such-program: program not found; PATH is "),
        (("/etc/hostname/x",), {}, 126, "/etc/hostname/x: cannot be run: Not a directory"),
        (("/etc",), {}, 126, "/etc: cannot be run: it is a directory"),
        (("/etc/passwd",), {}, 126, "/etc/passwd: cannot be run: Permission denied"),
        (("ls",), {"cwd": "/nowhere"}, 126, "/nowhere: no such working directory"),
        (("ls", "a\0b"), {}, 126, "ls: cannot be run: embedded null byte"),
        ((), {}, 126, "no program to run"),
    ],
)
def test_a_program_that_cannot_run(
    commands: Bench, argv: tuple[str, ...], rest: dict[str, str], code: int, text: str
) -> None:
    commands.send(command(1, *argv, **rest))
    outcome = commands.outcome()
    assert outcome.code == code
    assert outcome.message.startswith(text)


def test_input_that_is_no_command_fails_the_task(commands: Bench) -> None:
    commands.send(frames.Run([frames.HandOut(1, 1, b"\xc1")]))
    outcome = commands.outcome()
    assert outcome.code == 1
    assert outcome.message.startswith("DecodeError: ")


def test_sigterm_reaches_the_program_and_then_the_worker(commands: Bench, tmp_path: Path) -> None:
    text = "trap 'echo asked > asked; exit 0' TERM; touch begun; while :; do sleep 0.01; done"
    commands.send(command(1, "sh", "-c", text))
    while not (tmp_path / "begun").exists():
        time.sleep(0.001)
    commands.process.send_signal(signal.SIGTERM)
    assert commands.process.wait(60) == 0
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_session_name_stays_one_directory(commands: Bench) -> None:
    commands.send(frames.Leave(), frames.Enter("../up/..\nx"), command(1, "echo", "here"))
    commands.next(frames.Left)
    commands.next(frames.Entered)
    commands.outcome()
    assert (commands.logs / "_up_.._x/1.out").read_text() == "here\n"


def test_an_unknown_service_is_refused() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ullage.worker", "other"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == "usage: python -m ullage.worker function|command\n"
