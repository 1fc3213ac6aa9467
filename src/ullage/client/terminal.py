"""A program in an executor, connected with descriptors of this process: standard ones, or those of a terminal."""

from __future__ import annotations

import os
import select
import signal
import socket
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import BinaryIO, NamedTuple

from ullage.client.api import Api
from ullage.client.body import encode_body
from ullage.client.program_stream import ProgramStream
from ullage.client.transport import path_of
from ullage.wire.session import ExecBody
from ullage.wire.terminal import CHUNK, CODE, PROTOCOL, SIZE, Frame, FrameKind, TerminalReader, encode

_NO_SIZE = SIZE.pack(0, 0)
_ENDS = (FrameKind.EXIT, FrameKind.END, FrameKind.TAKEN)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a program without a terminal gets. One with a terminal gets them as keys."""

DETACH_KEYS = "~."
"""The keys that leave a program with a terminal; they count at the beginning of a line."""


class ProgramEnd(NamedTuple):
    """The end of a connection: the exit code of the program, or why it has none.

    The program goes on if neither is there: this client has detached, or another one has attached.
    """

    code: int | None
    reason: str = ""
    was_taken: bool = False


DETACHED = ProgramEnd(None)
TAKEN = ProgramEnd(None, was_taken=True)


class DetachKeys:
    """Finds `~.` at the beginning of a line, as ssh(1) does; `~~` there is one `~`."""

    def __init__(self) -> None:
        self._at_begin, self._holds = True, False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Return what the program gets, and whether the user leaves."""
        passed = bytearray()
        for byte in typed:
            if self._holds:
                self._holds = False
                if byte == ord("."):
                    return bytes(passed), True
                if byte != ord("~"):
                    passed += b"~"
            elif self._at_begin and byte == ord("~"):
                self._holds, self._at_begin = True, False
                continue
            passed.append(byte)
            self._at_begin = byte in b"\r\n"
        return bytes(passed), False


@dataclass(slots=True)
class Ends:
    """What a program is connected with. With `terminal` the input is a terminal, which becomes raw.

    `before` are bytes that were read from the input already.
    """

    stdin: int
    stdout: BinaryIO
    stderr: BinaryIO
    terminal: bool = False
    before: bytes = b""
    keys: DetachKeys = field(default_factory=DetachKeys)


@contextmanager
def open_exec(api: Api, session: str, task: int, program: ExecBody) -> Iterator[socket.socket]:
    """Yield the stream of a program that is run beside a running task."""
    order = encode(FrameKind.ORDER, encode_body(program) or b"")
    with api.transport.open_upgraded(path_of("sessions", session, "tasks", task, "exec"), PROTOCOL) as stream:
        stream.sendall(order)
        yield stream


def open_attached(api: Api, session: str, task: int) -> AbstractContextManager[socket.socket]:
    """Return the stream of a running task that was started for a client."""
    return api.transport.open_upgraded(path_of("sessions", session, "tasks", task, "attach"), PROTOCOL)


def send_input(stream: socket.socket, before: bytes, descriptor: int = 0) -> str:
    """Send bytes, and what can be read from a descriptor, to the input of a program. Return why it was not all sent.

    It returns when the program has ended.
    """
    stream.settimeout(None)
    reader, frames = TerminalReader(), list[Frame]()
    try:
        stream.sendall(encode(FrameKind.RESIZE, _NO_SIZE))
        for begin in range(0, len(before), CHUNK):
            stream.sendall(encode(FrameKind.STDIN, before[begin : begin + CHUNK]))
        while data := os.read(descriptor, CHUNK):
            stream.sendall(encode(FrameKind.STDIN, data))
        stream.sendall(encode(FrameKind.EOF))
    except OSError as error:  # the program may have ended without reading it all
        reason = error.strerror or str(error)
    else:
        reason = "the connection to the server was lost"
    with suppress(OSError):
        while data := stream.recv(CHUNK):
            frames += reader.feed(data)
    ends = {frame.kind: frame.data.decode(errors="replace") for frame in frames if frame.kind in _ENDS}
    return "" if ends.keys() & {FrameKind.EXIT, FrameKind.TAKEN} else ends.get(FrameKind.END, reason)


def connect(stream: socket.socket, ends: Ends, *, leaves: bool = False) -> ProgramEnd:
    """Copy between a program and its ends until it ends. With `leaves`, a user who detaches lets it go on.

    Raises:
        Unavailable: the connection to the server was lost (`program-lost`).
        KeyboardInterrupt: a second signal of the same kind arrived.

    """
    with ExitStack() as context:
        wake = context.enter_context(_woken())
        if ends.terminal:
            context.enter_context(_raw(ends.stdin))
        signals = context.enter_context(_signals(_PASSED_ON, is_passed=not ends.terminal))
        resized = context.enter_context(_signals((signal.SIGWINCH,), is_passed=True)) if ends.terminal else []
        return _Connection(stream, ends, wake, signals=signals, resized=resized, leaves=leaves).run()


class _Connection:
    def __init__(
        self,
        stream: socket.socket,
        ends: Ends,
        wake: int,
        *,
        signals: list[int],
        resized: list[int],
        leaves: bool,
    ) -> None:
        self._stream, self._ends, self._wake, self._leaves = ProgramStream(stream), ends, wake, leaves
        self._signals, self._resized = signals, resized
        self._sent_signals: set[int] = set()
        self._stream.put(FrameKind.RESIZE, self._size())
        for begin in range(0, len(ends.before), CHUNK):
            self._stream.put(FrameKind.STDIN, ends.before[begin : begin + CHUNK])
        self._reads_input = True
        self._ended: ProgramEnd | None = None

    def run(self) -> ProgramEnd:
        while self._ended is None:
            self._step()
        return self._ended

    def _step(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._stream.socket, self._stream.events)
        if self._reads_input and self._stream.takes_more:
            poll.register(self._ends.stdin, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        if self._wake in ready:
            os.read(self._wake, CHUNK)
        self._pass_signals()
        if self._ends.stdin in ready:
            self._read_input()
        self._stream.send()
        if self._stream.socket.fileno() in ready:
            self._read()

    def _pass_signals(self) -> None:
        while self._resized:
            self._resized.clear()
            self._stream.put(FrameKind.RESIZE, self._size())
        while self._signals:
            number = self._signals.pop()
            if number in self._sent_signals:
                raise KeyboardInterrupt
            self._sent_signals.add(number)
            self._stream.put(FrameKind.SIGNAL, CODE.pack(number))

    def _read_input(self) -> None:
        try:
            data = os.read(self._ends.stdin, CHUNK)
        except OSError:  # it is closed, or the terminal is gone
            data = b""
        if not data:
            self._reads_input = False
            self._stream.put(FrameKind.EOF)
            return
        leaves = False
        if self._ends.terminal:
            data, leaves = self._ends.keys.feed(data)
        if data:
            self._stream.put(FrameKind.STDIN, data)
        if leaves:
            self._leave()

    def _leave(self) -> None:
        """Detach. What the user has typed before is sent first."""
        if self._leaves:
            self._stream.put(FrameKind.DETACH)
        self._stream.send_rest()
        self._ended = DETACHED

    def _read(self) -> None:
        while self._ended is None and (frames := self._stream.read()) is not None:
            for frame in frames:
                self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.STDOUT | FrameKind.STDERR:
                output = self._ends.stdout if frame.kind is FrameKind.STDOUT else self._ends.stderr
                output.write(frame.data)
                output.flush()
            case FrameKind.EXIT:
                (code,) = CODE.unpack(frame.data)
                self._ended = ProgramEnd(code)
            case FrameKind.TAKEN:
                self._ended = TAKEN
            case FrameKind.END:
                self._ended = ProgramEnd(None, frame.data.decode(errors="replace"))

    def _size(self) -> bytes:
        if not self._ends.terminal:
            return _NO_SIZE
        return SIZE.pack(*termios.tcgetwinsize(self._ends.stdin))


@contextmanager
def _woken() -> Iterator[int]:
    """Yield a descriptor that can be read after each signal."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Let the program get each key at once."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)  # what was typed before counts
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _signals(numbers: tuple[signal.Signals, ...], *, is_passed: bool) -> Iterator[list[int]]:
    """Yield the list to which these signals are added; if they are not passed on, they raise KeyboardInterrupt."""
    arrived: list[int] = []

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def add(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    handler: Callable[[int, FrameType | None], object] = add if is_passed else interrupt
    before = {number: signal.getsignal(number) for number in numbers}
    for number, earlier in before.items():
        if earlier != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield arrived
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
