"""The host of a program whose input and output go through the server: a small process in the executor.

It opens a terminal or pipes, starts the program, and copies between them and a connection to the server, whose frames
`wire/terminal.py` describes. Neither direction buffers more than `_MOST_WAITING` bytes: who does not read stops who
writes. It runs isolated, has one thread, and imports the standard library and a few modules that do the same.

The program starts with the first `RESIZE` of a client. It gets SIGHUP once its client is lost, or the server is gone;
`HostOrder.grace_s` delays that. What ignores it is killed `_KILL_S` later. If the host is killed, so is the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

from ullage.host.program_start import start_failure
from ullage.wire.terminal import CHUNK, CODE, SIZE, Frame, FrameKind, HostOrder, TerminalReader, encode

SOCKET = "ULLAGE_TERMINAL_SOCKET"
"""The variable with the socket of the server for terminals, in the environment of each executor."""

SECRET = "ULLAGE_TERMINAL_SECRET"  # noqa: S105  # the name of a variable
"""The variable with what proves to the server which program a host is to run."""

FIRST_CLIENT_S = 30.0
"""Seconds within which the first client has to come."""

_KILL_S = 10.0
"""Seconds between SIGHUP and SIGKILL."""

_TERM_TO_HUP_S = 2.0
"""Seconds between SIGTERM and SIGHUP when the executor ends: an interactive shell ignores the first."""

_LAST_S = 10.0
"""The most seconds in which a client reads the last output of a task."""

_MOST_WAITING = 256 * 1024
_MOST_LEFT = 64
"""The most chunks that are read after the end of the program: more than its terminal and its pipes hold."""

_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
EARLY_TERM = signal.SIGRTMIN
"""The signal to a host whose program gets SIGTERM before its end, and goes on: SIGTERM to a host ends the task."""

_SIGNALLED = 128
_ABANDONED = 1
_PR_SET_PDEATHSIG = 1
_RUN = "import sys; sys.path.append(sys.argv[1]); from ullage.host.terminal import main; main()"
_PACKAGES = os.path.abspath(f"{__file__}/../../..")  # noqa: PTH100  # pathlib takes long to import
_libc = ctypes.CDLL(None)


def host_command(*arguments: str) -> list[str]:
    """Return the command line of a host: with the descriptor of a connection, or with `SECRET` in its environment."""
    return [sys.executable, "-I", "-S", "-c", _RUN, _PACKAGES, *arguments]


def main() -> None:
    """Run one program. The exit code is that of the program, or 1 if it was left alone."""
    inherited = sys.argv[2:]
    if inherited:  # from a worker, with the order as a file
        (descriptor,) = inherited
        connection = socket.socket(fileno=int(descriptor))
        with open(0, "rb", closefd=False) as file:  # a descriptor
            order = HostOrder(**json.load(file))
        sys.exit(_Host(connection, TerminalReader(), [], order).run())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ[SOCKET])
    connection.sendall(encode(FrameKind.HELLO, json.dumps({"secret": os.environ.pop(SECRET)}).encode()))
    reader, frames = TerminalReader(), list[Frame]()
    while not frames:
        data = connection.recv(CHUNK)
        if not data:
            sys.exit(_ABANDONED)
        frames = reader.feed(data)
    order_frame, *rest = frames
    host = _Host(connection, reader, rest, HostOrder(**json.loads(order_frame.data)))
    host.run()
    sys.exit(_ABANDONED if host.is_abandoned else 0)


class _Host:
    """One program and one connection."""

    def __init__(
        self, connection: socket.socket, reader: TerminalReader, arrived: list[Frame], order: HostOrder
    ) -> None:
        connection.setblocking(False)
        self._connection: socket.socket | None = connection
        self._reader = reader
        self._order = order
        self._to_client = bytearray()
        self._to_program = bytearray()
        self._is_attached, self._is_lost = True, False
        self._input_ends = False
        self._program: subprocess.Popen[bytes] | None = None
        self._terminal: int | None = None
        self._input: int | None = None
        self._outputs: dict[int, FrameKind] = {}
        self._code: int | None = None
        self._hang_up_at: float | None = time.monotonic() + FIRST_CLIENT_S
        self._kill_at: float | None = None
        self.is_abandoned = False
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _PASSED_ON:
            signal.signal(number, self._on_signal)
        signal.signal(EARLY_TERM, lambda *_: self._send_signal(signal.SIGTERM))
        self._arrived = arrived

    def run(self) -> int:
        """Run the program to its end. Return its exit code as a shell has it."""
        for frame in self._arrived:
            self._handle(frame)
        while self._code is None:
            self._step()
        for descriptor, kind in list(self._outputs.items()):
            for _ in range(_MOST_LEFT):
                if not self._read_output(descriptor, kind):
                    break
        self._send(FrameKind.EXIT, CODE.pack(self._code))
        self._hang_up_at, self._kill_at = None, time.monotonic() + _LAST_S if self._order.logged else None
        while self._to_client and self._connection is not None:
            ready = self._poll({self._connection.fileno(): select.POLLOUT | select.POLLIN})
            if not ready:  # an executor must not wait for a client that has stopped
                break
            self._receive()
            self._flush()
        self._linger()
        return self._code

    def _linger(self) -> None:
        """Read what still comes: a connection that closes before loses its last frames at the other end."""
        if self._connection is None:
            return
        until = time.monotonic() + _LAST_S
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0:
                self._connection.settimeout(left)
                if not self._connection.recv(CHUNK):
                    return

    def _step(self) -> None:
        """Wait until something is ready, and handle all that is."""
        wanted = {self._wake: select.POLLIN}
        if self._connection is not None:
            reads = select.POLLIN if len(self._to_program) < _MOST_WAITING else 0
            wanted[self._connection.fileno()] = reads | (select.POLLOUT if self._to_client else 0)
        if len(self._to_client) < _MOST_WAITING:
            wanted |= dict.fromkeys(self._outputs, select.POLLIN)
        if self._input is not None and self._to_program:
            wanted[self._input] = wanted.get(self._input, 0) | select.POLLOUT  # a terminal is an output, too
        ready = self._poll(wanted)
        if self._wake in ready:
            os.read(self._wake, CHUNK)
        if self._connection is not None and self._connection.fileno() in ready:
            self._flush()
            if ready[self._connection.fileno()] & ~select.POLLOUT:
                self._receive()
        for descriptor, kind in list(self._outputs.items()):
            if descriptor in ready:
                self._read_output(descriptor, kind)
        if self._input in ready:
            self._write_input()
        self._end_in_time()
        self._reap()

    def _poll(self, wanted: dict[int, int]) -> dict[int, int]:
        """Return the events of the descriptors that are ready before something is due."""
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        return dict(poll.poll(self._timeout_ms()))

    # --- the client ---

    def _receive(self) -> None:
        if self._connection is None:
            return
        try:
            data = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_connection()
            return
        for frame in self._reader.feed(data):
            self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.RESIZE:
                self._resize(frame.data)
            case FrameKind.STDIN if not self._input_ends and self._code is None:
                self._to_program += frame.data
            case FrameKind.EOF:
                self._input_ends = True
                self._close_input_at_end()
            case FrameKind.SIGNAL:
                (number,) = CODE.unpack(frame.data)
                self._signal(number)
            case FrameKind.ATTACHED | FrameKind.DETACH:
                self._is_attached, self._is_lost = frame.kind is FrameKind.ATTACHED, False
                self._hang_up_at = None
            case FrameKind.LOST:
                self._is_attached, self._is_lost = False, True
                self._hang_up_at = time.monotonic() + self._order.grace_s

    def _send(self, kind: FrameKind, data: bytes) -> None:
        if self._connection is not None:
            self._to_client += encode(kind, data)
            self._flush()

    def _flush(self) -> None:
        if self._connection is None or not self._to_client:
            return
        try:
            sent = self._connection.send(self._to_client)
        except BlockingIOError:
            return
        except OSError:
            self._lose_connection()
            return
        del self._to_client[:sent]

    def _lose_connection(self) -> None:
        """Go on without a server, which will not come back: nothing can reach the program any more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._to_client.clear()
            self._hang_up_at = time.monotonic()

    # --- the program ---

    def _start(self, size: bytes) -> None:
        order = self._order
        try:
            if order.tty:
                self._start_on_terminal(size)
            else:
                self._start_on_pipes()
        except (OSError, ValueError) as error:
            failure = start_failure(error, order.argv[0], order.cwd, order.env)
            self._say(f"ullage: {failure.message}\n".encode())
            self._code = failure.code

    def _say(self, text: bytes) -> None:
        """Print a line of Ullage where the program prints its errors."""
        if self._order.logged:
            _write_all(2, text)
        if not self._order.logged or self._order.tty:
            self._send(
                *(FrameKind.STDOUT, text.replace(b"\n", b"\r\n")) if self._order.tty else (FrameKind.STDERR, text)
            )

    def _start_on_terminal(self, size: bytes) -> None:
        terminal, end = os.openpty()  # the end stays open: a program may close it and open it again
        _set_size(terminal, size)
        self._program = self._popen(end, end, end)
        os.set_blocking(terminal, False)
        self._terminal = self._input = terminal
        self._outputs = {terminal: FrameKind.STDOUT}

    def _start_on_pipes(self) -> None:
        order = self._order
        pipe, none = subprocess.PIPE, None
        program = self._program = self._popen(pipe, none if order.logged else pipe, none if order.logged else pipe)
        assert program.stdin is not None
        self._input = program.stdin.fileno()
        os.set_blocking(self._input, False)
        for file, kind in ((program.stdout, FrameKind.STDOUT), (program.stderr, FrameKind.STDERR)):
            if file is not None:
                os.set_blocking(file.fileno(), False)
                self._outputs[file.fileno()] = kind
        self._close_input_at_end()

    def _popen(self, stdin: int, stdout: int | None, stderr: int | None) -> subprocess.Popen[bytes]:
        order = self._order

        def prepare() -> None:
            if order.tty:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        return subprocess.Popen(  # noqa: S603  # its purpose
            order.argv,
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=order.cwd,
            env=order.env,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  # this process has one thread
        )

    def _read_output(self, descriptor: int, kind: FrameKind) -> bool:
        """Read one chunk of output. Return whether there may be more."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            del self._outputs[descriptor]
            return False
        if self._order.logged:
            _write_all(1, data)
        if self._is_attached:
            self._send(kind, data)
        return True

    def _write_input(self) -> None:
        if self._input is None or not self._to_program:
            return
        try:
            written = os.write(self._input, self._to_program)
        except BlockingIOError:
            return
        except OSError:  # the program reads no more
            self._to_program.clear()
            self._input_ends = True
        else:
            del self._to_program[:written]
        self._close_input_at_end()

    def _close_input_at_end(self) -> None:
        if self._input_ends and not self._to_program and self._program is not None and self._program.stdin is not None:
            self._input = None
            self._program.stdin.close()
            self._program.stdin = None

    def _resize(self, size: bytes) -> None:
        if self._program is None:
            self._hang_up_at = None
            self._start(size)
        elif self._terminal is not None:
            _set_size(self._terminal, size)
            self._signal(signal.SIGWINCH)  # also without a change: another client has to get the whole screen

    def _signal(self, number: int) -> None:
        """Signal the program, and what it runs in the foreground of its terminal."""
        if self._program is None or self._program.returncode is not None:
            return
        groups = {self._program.pid}
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                groups.add(os.tcgetpgrp(self._terminal))
        for group in groups:
            with contextlib.suppress(OSError, ValueError):
                os.killpg(group, number)

    # --- the end ---

    def _on_signal(self, number: int, _frame: object) -> None:
        """Pass a signal on to the program itself. After SIGTERM the task ends, which a shell learns by SIGHUP."""
        self._send_signal(number)
        if number == signal.SIGTERM:
            self._hang_up_at = time.monotonic() + (_TERM_TO_HUP_S if self._program is not None else 0.0)

    def _send_signal(self, number: int) -> None:
        if self._program is not None:
            self._program.send_signal(number)

    def _timeout_ms(self) -> float | None:
        due = [at for at in (self._hang_up_at, self._kill_at) if at is not None]
        return 1000 * max(0.0, min(due) - time.monotonic()) if due else None

    def _end_in_time(self) -> None:
        now = time.monotonic()
        if self._hang_up_at is not None and now >= self._hang_up_at:
            self._hang_up_at = None
            self._hang_up(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)

    def _hang_up(self, now: float) -> None:
        self.is_abandoned = True
        if self._program is None:
            self._say(b"ullage: no client came, so the program was not started\n")
            self._code = _ABANDONED
            return
        if self._order.logged and self._is_lost:
            _write_all(2, b"ullage: its client is gone, so it gets SIGHUP\n")
        self._signal(signal.SIGHUP)
        self._signal(signal.SIGCONT)
        self._kill_at = now + _KILL_S

    def _reap(self) -> None:
        if self._program is not None and self._program.poll() is not None:
            code = self._program.returncode
            self._code = _SIGNALLED - code if code < 0 else code


def _set_size(terminal: int, size: bytes) -> None:
    rows, columns = SIZE.unpack(size)
    if rows and columns:
        termios.tcsetwinsize(terminal, (rows, columns))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def order_of(
    argv: Sequence[str], env: dict[str, str], cwd: str | None, *, tty: bool, logged: bool, grace_s: float = 0.0
) -> bytes:
    """Return an order as bytes."""
    order = HostOrder(list(argv), env, cwd, tty, logged=logged, grace_s=grace_s)
    return json.dumps(order._asdict()).encode()
