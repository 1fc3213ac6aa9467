"""What a task prints, kept as its log.

The standard output and error of a worker lead through two pipes to the recorder, a process of its own: code that holds
the lock of the interpreter and prints more than a pipe holds would otherwise wait for itself. The recorder passes all
that comes on to the log of the executor, and what comes while a task runs to the log of this task. The worker waits at
the end of a task until the pipes are empty, so that nothing is counted to the next one. That costs a task that prints
nothing two system calls. A task that prints nothing has no log.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import selectors
import signal
import socket
import sys
import termios
import time
from pathlib import Path

from ullage.wire.output_log import LogWriter

_TASK, _BUSY, _COPIED = 0, 1, 3
"""Cells of the shared memory: the number of the running task or 0; for each stream whether the recorder copies, and
how many bytes it has copied."""

_CHUNK = 64 * 1024
_LONGEST_PATH = 4096

_CHECK_S = 0.0002
_MOST_S = 30.0
"""Seconds between two checks of the pipes at the end of a task, and the most seconds until the next task starts: the
disk of the logs may hang."""


class Unrecorded:
    """Keeps nothing: for services that keep the logs of their tasks themselves."""

    def enter(self, directory: Path) -> None:
        """Do nothing."""

    def begin(self, task: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class Recorder(Unrecorded):
    """The worker's end of the recorder. Only the main thread uses it."""

    def __init__(self) -> None:
        """Start the recorder, and send the standard output and error of this process through it.

        Raises:
            OSError: no process or no descriptor is left.

        """
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._cells = memoryview(memory).cast("Q")
        self._directories, directories = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe() for _ in range(2)]
        _flush()
        pid = os.fork()
        if pid == 0:
            _record([reader for reader, _ in pipes], directories, self._cells)
        directories.close()
        self._writers = []
        for standard, (reader, writer) in enumerate(pipes, start=1):
            os.close(reader)
            os.dup2(writer, standard)
            self._writers.append(writer)
        self._waiting = array.array("i", [0])

    def enter(self, directory: Path) -> None:
        """Keep the logs of the following tasks in `directory`, which is created for the first one that prints."""
        with contextlib.suppress(OSError):  # the recorder was killed
            self._directories.send(os.fsencode(directory)[:_LONGEST_PATH])

    def begin(self, task: int) -> None:
        """Keep what is printed from now on as the log of `task`."""
        self._cells[_TASK] = task

    def end(self) -> None:
        """Wait until all that the task has printed is written."""
        _flush()
        with contextlib.suppress(OSError):  # user code closed the descriptors
            for stream, writer in enumerate(self._writers):
                if not self._is_empty(stream, writer):
                    self._wait(stream, writer)
        self._cells[_TASK] = 0

    def _wait(self, stream: int, writer: int) -> None:
        """Wait until a pipe is empty, or until more was copied than it held: a process left behind may fill it."""
        waiting, ends = self._waiting[0], time.monotonic() + _MOST_S
        enough = waiting + _CHUNK + self._cells[_COPIED + stream]
        while not self._is_empty(stream, writer) and self._cells[_COPIED + stream] < enough:
            if time.monotonic() > ends:
                return
            time.sleep(_CHECK_S)

    def _is_empty(self, stream: int, writer: int) -> bool:
        fcntl.ioctl(writer, termios.FIONREAD, self._waiting)
        # The recorder sets the second cell before it empties the pipe.
        return not self._waiting[0] and not self._cells[_BUSY + stream]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # `suppress` takes longer than the rest of this
            stream.flush()
        except Exception:  # noqa: BLE001, S110  # user code may have replaced or closed it
            pass


def _record(readers: list[int], directories: socket.socket, cells: memoryview) -> None:
    """Be the recorder: copy until every other process has closed its ends, or the worker has ended."""
    try:
        # The worker ends the recorder by its own end, after the last output.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        own = sorted((*readers, directories.fileno()))
        for after, before in zip((2, *own), (*own, os.sysconf("SC_OPEN_MAX")), strict=True):
            os.closerange(after + 1, before)  # a socket of the worker must close when the worker closes it
        _Copier(readers, directories, cells).run()
    finally:
        os._exit(0)


class _Copier:
    """The loop of the recorder."""

    def __init__(self, readers: list[int], directories: socket.socket, cells: memoryview) -> None:
        self._directories = directories
        self._cells = cells
        self._streams = {
            reader: _Stream(standard, suffix)
            for reader, standard, suffix in zip(readers, (1, 2), (".out", ".err"), strict=True)
        }
        self._selector = selectors.DefaultSelector()
        self._directory: Path | None = None
        self._worker_lives = True

    def run(self) -> None:
        directories = self._directories.fileno()
        for descriptor in (*self._streams, directories):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)
        while self._worker_lives and self._streams:
            ready = {key.fd for key, _ in self._selector.select()}
            self._enter()  # before any output: a task of the next session may have printed already
            for reader in ready & self._streams.keys():
                self._copy(reader)
        for reader in list(self._streams):
            while reader in self._streams and self._copy(reader):
                pass

    def _enter(self) -> None:
        while True:
            try:
                data = self._directories.recv(_LONGEST_PATH)
            except BlockingIOError:
                return
            if not data:
                self._worker_lives = False
                return
            self._directory = Path(os.fsdecode(data))
            for stream in self._streams.values():
                stream.close()

    def _copy(self, reader: int) -> bool:
        """Copy one chunk. Return whether there was one."""
        stream = self._streams[reader]
        cells, number = self._cells, stream.number
        cells[_BUSY + number] = 1
        try:
            task = cells[_TASK]
            data = os.read(reader, _CHUNK)
            if data:
                stream.write(data, self._directory, task)
                cells[_COPIED + number] += len(data)
        except BlockingIOError:
            return False
        finally:
            cells[_BUSY + number] = 0
        if not data:
            self._selector.unregister(reader)
            del self._streams[reader]
            stream.close()
            return False
        return True


class _Stream:
    """One of the two streams: where it goes to, and the log of the task that printed last."""

    def __init__(self, standard: int, suffix: str) -> None:
        self.number = standard - 1
        self._standard, self._suffix = standard, suffix
        self._task = 0
        self._log: LogWriter | None = None

    def write(self, data: bytes, directory: Path | None, task: int) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone
            left = memoryview(data)
            while left:
                left = left[os.write(self._standard, left) :]
        if not task or directory is None:
            return
        if self._task != task:
            self.close()
            self._task, self._log = task, self._open(directory, task)
        if self._log is not None:
            self._log.write(data)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._task, self._log = 0, None

    def _open(self, directory: Path, task: int) -> LogWriter | None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return LogWriter(directory, f"{task}{self._suffix}", timed=True)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(2, f"ullage: the log of task {task} cannot be opened: {error.strerror}\n".encode())
            return None
