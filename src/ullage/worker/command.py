"""The built-in service `command`: runs a program as a child process.

A task's input is a msgpack `Command`, its output a msgpack `Ended`. The task's code is the exit
code, 128+n for a program ended by signal n, 127 if the program is not found and 126 if it cannot
be run: a shell's habits. What the program prints goes through pipes and is appended to the logs
`<task>.out` and `<task>.err` in the directory `$ULLAGE_TASK_LOGS/<logs of the session>`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

import msgspec

from ullage.worker.context import Context
from ullage.worker.output import Output
from ullage.worker.service import Task, TaskFailed

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_SIGNALLED = 128
_OURS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "CUDA_MPS_", "NVIDIA_VISIBLE_DEVICES", "ULLAGE_")
"""How the names of variables begin by which an executor is told what it was granted."""


class Command(msgspec.Struct, frozen=True):
    """What to run. `cwd` None is the executor's directory; `env` is added to the executor's.

    What says which cards were granted stays as it is.
    """

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: bytes | None = None


class Ended(msgspec.Struct, frozen=True):
    """How it ended: `signal` is the number that killed it; memory is the largest process's peak."""

    exit_code: int
    signal: int | None
    seconds: float
    max_rss_bytes: int


class CommandService:
    """Runs one program at a time; SIGTERM to the worker is passed on to it."""

    def __init__(self) -> None:
        self._logs = Path(os.environ["ULLAGE_TASK_LOGS"])
        self._directory = self._logs

    def on_session_enter(self, context: Context) -> None:
        """Make the directory for the session's logs."""
        self._directory = self._logs / _file_name(context.logs or context.session)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def on_session_leave(self) -> None:
        """Nothing is kept."""

    def on_task_invoke(self, task: Task) -> bytes:
        """Run the program to its end.

        Raises:
            TaskFailed: it could not be started, or its exit code is not 0.

        """
        command = msgspec.msgpack.decode(task.input, type=Command)
        try:
            printed = Output(self._directory, str(task.id))
        except OSError as error:
            raise TaskFailed(f"its logs cannot be opened: {error.strerror or error}", code=NOT_EXECUTABLE) from None
        with printed, _stdin(command.stdin) as given, _Forwarding() as to:
            started = time.monotonic()
            child = to.child(_start(command, given, *printed.writers))
            printed.close_writers()
            printed.copy_until_exit(child.pid)
            ended = _wait(child, started)
        output = msgspec.msgpack.encode(ended)
        if ended.exit_code:
            raise TaskFailed(_how(command.argv[0], ended), code=ended.exit_code, output=output)
        return output


def _start(command: Command, given: int, out: int, err: int) -> subprocess.Popen[bytes]:
    if not command.argv:
        raise TaskFailed("there is no program to run: argv is empty", code=NOT_EXECUTABLE)
    program = command.argv[0]
    env = {**os.environ, **command.env, **_granted(os.environ)}
    try:
        return subprocess.Popen(command.argv, stdin=given, stdout=out, stderr=err, cwd=command.cwd, env=env)  # noqa: S603  # its purpose
    except ValueError as error:  # a NUL character in an argument
        raise TaskFailed(f"{program}: cannot be run: {error}", code=NOT_EXECUTABLE) from None
    except OSError as error:
        if command.cwd is not None and not Path(command.cwd).is_dir():
            raise TaskFailed(f"{command.cwd}: no such working directory", code=NOT_EXECUTABLE) from None
        if error.errno == errno.ENOENT:
            text = f"{program}: program not found; PATH is {env.get('PATH', '')}"
            raise TaskFailed(text, code=NOT_FOUND) from None
        why = "it is a directory" if Path(command.cwd or ".", program).is_dir() else error.strerror
        raise TaskFailed(f"{program}: cannot be run: {why}", code=NOT_EXECUTABLE) from None


def _granted(executor: Mapping[str, str]) -> dict[str, str]:
    """Return what a program cannot set otherwise, as whoever passes a whole environment on did not mean to."""
    ours = {name: value for name, value in executor.items() if name.startswith(_OURS)}
    if executor.get("ULLAGE_GPU_ENFORCED") == "hami" and "LD_PRELOAD" in executor:
        ours["LD_PRELOAD"] = executor["LD_PRELOAD"]
    return ours


class _Forwarding:
    """Passes SIGTERM on to a program, also one that comes while the program is being started."""

    def __enter__(self) -> Self:
        self._terminated = False
        self._child: subprocess.Popen[bytes] | None = None
        self._before = signal.signal(signal.SIGTERM, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        if self._terminated:
            os.kill(os.getpid(), signal.SIGTERM)  # now it is the worker's turn

    def child(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Forward to `child` from now on, and what came before."""
        self._child = child
        if self._terminated:
            child.send_signal(signal.SIGTERM)
        return child

    def _forward(self, _number: int, _frame: FrameType | None) -> None:
        self._terminated = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)


def _wait(child: subprocess.Popen[bytes], started: float) -> Ended:
    """Wait for `child`, begun at `started` (monotonic seconds)."""
    _, status, usage = os.wait4(child.pid, 0)
    code = child.returncode = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else None
    # ru_maxrss is in KiB: getrusage(2).
    return Ended(_SIGNALLED - code if code < 0 else code, number, time.monotonic() - started, usage.ru_maxrss * 1024)


def _how(program: str, ended: Ended) -> str:
    if ended.signal is None:
        return f"{program}: exit code {ended.exit_code}"
    try:
        return f"{program}: killed by {signal.Signals(ended.signal).name}"
    except ValueError:  # a real-time signal has no name
        return f"{program}: killed by signal {ended.signal}"


@contextmanager
def _stdin(data: bytes | None) -> Iterator[int]:
    """A descriptor that reads `data`: a file in memory, so that a program that reads nothing blocks nobody."""
    if data is None:
        yield subprocess.DEVNULL
        return
    descriptor = os.memfd_create("stdin")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _file_name(session: str) -> str:
    """`session` as one file name that stays inside its directory."""
    return re.sub(r"[^A-Za-z0-9._@-]", "_", session).lstrip(".") or "_"
