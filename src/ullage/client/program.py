"""A program in the executor of a running task, with its input and output in memory or in files."""

from __future__ import annotations

import io
import select
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import BinaryIO, NamedTuple

from ullage.client.api import Api
from ullage.client.body import encode_body
from ullage.client.deadline import Deadline
from ullage.client.program_stream import ProgramStream
from ullage.client.terminal import open_exec
from ullage.client.transport import ANSWER_S
from ullage.model.environment import check_environment
from ullage.model.error import Conflict, InvalidRequest, Unavailable, invalid
from ullage.wire.session import ExecBody
from ullage.wire.terminal import CHUNK, CODE, MOST_ORDER, SIZE, Frame, FrameKind

_LONGEST_WAIT_S = 3600.0
_TASK = 1


class ProgramResult(NamedTuple):
    """The end of a program: its exit code as a shell has it, and its output; what went to a file is empty here.

    The code is 126 or 127 if the program could not run, and 128 and the number of a signal that killed it.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes


class ProgramEnds(NamedTuple):
    """What a program reads, and the files that its output goes to; None is memory."""

    stdin: bytes = b""
    stdout: BinaryIO | None = None
    stderr: BinaryIO | None = None


def only_task(api: Api, session: str, fix: str) -> int:
    """Return the number of the only task of a session.

    Raises:
        InvalidRequest: it has several, or none; `fix` says how to name one.

    """
    body = api.session(session)
    count = body.pending + body.running + body.succeed + body.failed + body.cancelled
    if count != 1:
        raise invalid("task", session, f"it has {count} tasks; {fix}")
    return _TASK


def program_of(argv: Sequence[str], env: Mapping[str, str] | None) -> ExecBody:
    """Return the program that a caller asks for.

    Raises:
        InvalidRequest: it is no list of words, a variable cannot be set, or all together are too large.

    """
    words = list(argv) if isinstance(argv, Iterable) and not isinstance(argv, str | bytes) else []
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise invalid("argv", argv, 'write the program and each of its arguments as a text, as in ["ls", "-l"]')
    variables = dict(env or {})
    if not all(isinstance(each, str) for pair in variables.items() for each in pair):
        raise invalid("env", env, "names and values are texts")
    check_environment("env", variables)
    program = ExecBody(argv=words, env=variables)
    if len(encode_body(program) or b"") > MOST_ORDER:
        raise InvalidRequest(f"argv and env have more than {MOST_ORDER >> 20} MiB; use stdin", field="argv")
    return program


def run_program(
    api: Api, session: str, task: int | None, program: ExecBody, *, ends: ProgramEnds, timeout: float | None = None
) -> ProgramResult:
    """Run a program beside a task, its only one if `task` is None, to its end.

    Raises:
        TimeoutError: it has not ended in time. It gets SIGHUP, and SIGKILL 10 s later.
        NotFound: the session or the task does not exist.
        Conflict: the task does not run (`task-not-running`), or the program did not end by itself (`program-ended`).
        Unavailable: no server answers, or the connection was lost (`program-lost`).

    """
    if task is not None and (not isinstance(task, int) or isinstance(task, bool) or task < _TASK):
        raise invalid("task", task, "tasks have numbers from 1, as `future.task`")
    if not isinstance(ends.stdin, bytes | bytearray | memoryview):
        raise invalid("stdin", ends.stdin, "bytes are needed; those of a text are text.encode()")
    api.transport.require_open()
    deadline = Deadline(timeout)
    with ExitStack() as context:
        if timeout is not None and timeout < ANSWER_S:
            hurried = api.transport.hurried(max(timeout, 0.0))
            context.callback(hurried.close)
            api = Api(hurried)
        try:
            number = only_task(api, session, "name one, as in task=1") if task is None else task
            stream = context.enter_context(open_exec(api, session, number, program))
        except Unavailable as error:
            if deadline.remaining() == 0:
                raise TimeoutError(f"{program.argv[0]} was not started within {timeout:g} s") from error
            raise
        exchange = _Exchange(stream, ends)
        code = exchange.run(deadline)
    if code is None:
        raise TimeoutError(f"{program.argv[0]} has not ended within {timeout:g} s; it gets SIGHUP, and SIGKILL later")
    return ProgramResult(code, *exchange.outputs())


class _Exchange:
    """The copying between a program and its ends."""

    def __init__(self, stream: socket.socket, ends: ProgramEnds) -> None:
        self._stream = ProgramStream(stream)
        self._stream.put(FrameKind.RESIZE, SIZE.pack(0, 0))
        self._input = memoryview(ends.stdin).cast("B")
        self._sends_input = True
        self._memory = (io.BytesIO(), io.BytesIO())
        given = (ends.stdout, ends.stderr)  # a file may be false, such as one that counts its bytes
        self._files = [own if file is None else file for file, own in zip(given, self._memory, strict=True)]
        self._code: int | None = None

    def outputs(self) -> tuple[bytes, bytes]:
        """Return what the program has printed to memory."""
        out, err = self._memory
        return out.getvalue(), err.getvalue()

    def run(self, deadline: Deadline) -> int | None:
        """Return the exit code of the program; None if it has not ended in time."""
        while self._code is None and (left := deadline.remaining()) != 0:
            self._fill()
            self._wait(left)
            self._sends_input &= self._stream.send()
            self._read(deadline)
        return self._code

    def _wait(self, seconds: float | None) -> None:
        poll = select.poll()
        with suppress(ValueError):  # it was closed by another thread, which the next read finds
            poll.register(self._stream.socket, self._stream.events)
            poll.poll(None if seconds is None else 1000 * min(seconds, _LONGEST_WAIT_S))

    def _fill(self) -> None:
        """Put as much of the input as is sent next."""
        while self._sends_input and self._stream.takes_more:
            if self._input:
                self._stream.put(FrameKind.STDIN, bytes(self._input[:CHUNK]))
                self._input = self._input[CHUNK:]
            else:
                self._stream.put(FrameKind.EOF)
                self._sends_input = False

    def _read(self, deadline: Deadline) -> None:
        while self._code is None and deadline.remaining() != 0 and (frames := self._stream.read()) is not None:
            for frame in frames:
                self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.STDOUT:
                out, _ = self._files
                _write_all(out, frame.data)
            case FrameKind.STDERR:
                _, err = self._files
                _write_all(err, frame.data)
            case FrameKind.EXIT:
                (self._code,) = CODE.unpack(frame.data)
            case FrameKind.END:
                raise Conflict(frame.data.decode(errors="replace"), code="program-ended")


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write to a file, which may take a part at a time if it is not buffered."""
    while data:
        written = file.write(data)
        data = data[written:] if isinstance(written, int) and written else b""
