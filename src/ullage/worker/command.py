"""The built-in service `command`: runs a program as a child process.

The input of a task is a msgpack `Command`, its output a msgpack `Ended`. As in a shell, the code of the task is the
exit code, 128+n for a program ended by signal n, 127 if the program is not found, 126 if it cannot be run. The output
of the program goes through pipes to the logs `<task>.out` and `<task>.err` in the directory
`$ULLAGE_TASK_LOGS/<logs of the session>`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

import msgspec

from ullage.host.program_start import NOT_EXECUTABLE, program_environment, start_failure
from ullage.host.terminal import EARLY_TERM
from ullage.worker.context import Context
from ullage.worker.hosted import start_host
from ullage.worker.log_directory import log_directory
from ullage.worker.output import Output
from ullage.worker.service import Task, TaskFailed

_SIGNALLED = 128


class Command(msgspec.Struct, frozen=True):
    """The program to run. `cwd` None is the executor's directory; `env` is added to the executor's environment.

    `env` cannot change the variables of the grant. With `tty` the program has a terminal, and with `streamed` an input,
    for which a client attaches to the task; it starts with the first one.
    """

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: bytes | None = None
    tty: bool = False
    streamed: bool = False

    @property
    def is_hosted(self) -> bool:
        """Whether its input comes from a client."""
        return self.tty or self.streamed


class Element(msgspec.Struct, frozen=True):
    """The input of one task of an array, whose program is the shared data: `env` is added to that of the program."""

    env: dict[str, str]


class Ended(msgspec.Struct, frozen=True):
    """The end of a program: `signal` is the number that killed it; memory is the peak of its largest process."""

    exit_code: int
    signal: int | None
    seconds: float
    max_rss_bytes: int


class CommandService:
    """Runs one program at a time, and forwards SIGTERM to it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: tuple[Output, _Forwarding] | None = None
        self._directory = Path()
        self._session = ""

    def on_session_enter(self, context: Context) -> None:
        """Create the directory for the session's logs."""
        self._session = context.session
        self._directory = log_directory(context)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def on_session_leave(self) -> None:
        """Do nothing."""

    def on_signal(self, number: int, text: str) -> None:
        """Write the text to the log of the program, and send it the signal."""
        with self._lock:
            if self._running is not None:
                printed, forwarding = self._running
                printed.note(text)
                forwarding.send_early(number)

    @contextmanager
    def _signalled_through(self, printed: Output, forwarding: _Forwarding) -> Iterator[None]:
        with self._lock:
            self._running = printed, forwarding
        try:
            yield
        finally:
            with self._lock:
                self._running = None

    def on_task_invoke(self, task: Task) -> bytes:
        """Run the program to its end.

        Raises:
            TaskFailed: it could not be started, or its exit code is not 0.

        """
        command = command_of(task.input, task.shared)
        names = {"ULLAGE_SESSION": self._session, "ULLAGE_TASK": str(task.id)}
        try:
            printed = Output(self._directory, str(task.id))
        except OSError as error:
            raise TaskFailed(f"its logs cannot be opened: {error.strerror or error}", code=NOT_EXECUTABLE) from None
        with (
            printed,
            _stdin(command.stdin) as stdin,
            _Forwarding(self._lock, hosted=command.is_hosted) as forwarding,
            self._signalled_through(printed, forwarding),
        ):
            started = time.monotonic()
            start = partial(_start_hosted, task=task.id) if command.is_hosted else partial(_start, stdin=stdin)
            out, err = printed.writers
            child = forwarding.start_to(start(command, names, out=out, err=err))
            printed.close_writers()
            printed.copy_until_exit(child.pid)
            ended = _wait(child, started)
        output = msgspec.msgpack.encode(ended)
        if ended.exit_code:
            raise TaskFailed(_text(command.argv[0], ended), code=ended.exit_code, output=output)
        return output


def command_of(data: bytes, shared: bytes | None) -> Command:
    """Return the program in the input of a task; that of an array is its shared data.

    Raises:
        msgspec.MsgspecError: it is malformed.

    """
    if shared is None:
        return msgspec.msgpack.decode(data, type=Command)
    command = msgspec.msgpack.decode(shared, type=Command)
    element = msgspec.msgpack.decode(data, type=Element)
    return msgspec.structs.replace(command, env=command.env | element.env)


def _start_hosted(
    command: Command, names: Mapping[str, str], task: int, *, out: int, err: int
) -> subprocess.Popen[bytes]:
    if not command.argv:
        raise TaskFailed("no program to run: argv is empty", code=NOT_EXECUTABLE)
    try:
        return start_host(command, task, program_environment(os.environ, command.env, names), out=out, err=err)
    except (OSError, KeyError) as error:
        reason = "its engine has none" if isinstance(error, KeyError) else error.strerror
        raise TaskFailed(f"the program has no client: {reason}", code=NOT_EXECUTABLE) from None


def _start(command: Command, names: Mapping[str, str], stdin: int, *, out: int, err: int) -> subprocess.Popen[bytes]:
    if not command.argv:
        raise TaskFailed("no program to run: argv is empty", code=NOT_EXECUTABLE)
    env = program_environment(os.environ, command.env, names)
    try:
        return subprocess.Popen(command.argv, stdin=stdin, stdout=out, stderr=err, cwd=command.cwd, env=env)  # noqa: S603  # its purpose
    except (OSError, ValueError) as error:
        code, text = start_failure(error, command.argv[0], command.cwd, env)
        raise TaskFailed(text, code=code) from None


class _Forwarding:
    """Sends signals to a program, also those that arrive while it starts; SIGTERM to this process among them.

    It holds the lock where the main thread and another one meet.
    """

    def __init__(self, lock: threading.RLock, *, hosted: bool) -> None:
        self._lock = lock
        self._hosted = hosted
        self._waiting: list[int] = []
        self._child: int | None = None  # a descriptor of the process: a pid may be that of another one later

    def __enter__(self) -> Self:
        self._terminated = False
        self._before = signal.signal(signal.SIGTERM, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        if self._child is not None:
            os.close(self._child)
        if self._terminated:
            os.kill(os.getpid(), signal.SIGTERM)  # the worker ends too

    def start_to(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Send to `child`, including what arrived before."""
        with self._lock:
            self._child = os.pidfd_open(child.pid)
            for number in self._waiting:
                self.send(number)
        return child

    def send_early(self, number: int) -> None:
        """Send a signal after which the program may go on; the host of one takes SIGTERM for its end."""
        self.send(EARLY_TERM if self._hosted and number == signal.SIGTERM else number)

    def send(self, number: int) -> None:
        """Send a signal to the program, or when it has started."""
        with self._lock:
            if self._child is None:
                self._waiting.append(number)
                return
            with suppress(ProcessLookupError):  # it has ended
                signal.pidfd_send_signal(self._child, number)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self._terminated = True
        self.send(number)


def _wait(child: subprocess.Popen[bytes], started: float) -> Ended:
    """Wait for `child`, which started at `started` (monotonic seconds)."""
    _, status, usage = os.wait4(child.pid, 0)
    code = child.returncode = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else None
    # ru_maxrss is in KiB: getrusage(2).
    return Ended(_SIGNALLED - code if code < 0 else code, number, time.monotonic() - started, usage.ru_maxrss * 1024)


def _text(program: str, ended: Ended) -> str:
    if ended.signal is None:
        return f"{program}: exit code {ended.exit_code}"
    try:
        return f"{program}: killed by {signal.Signals(ended.signal).name}"
    except ValueError:  # a real-time signal has no name
        return f"{program}: killed by signal {ended.signal}"


@contextmanager
def _stdin(data: bytes | None) -> Iterator[int]:
    """Yield a descriptor that reads `data` from a file in memory, which does not block if it is not read."""
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
