"""Copies the output of a program from pipes to its logs, whose size is bounded.

The main thread copies while it waits for the program. Background processes of the program may hold the pipes open.
A thread then copies for as long as the worker lives, so that they never block on a full pipe.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque
from pathlib import Path
from typing import Self

from ullage.wire.log_note import note_line
from ullage.wire.output_log import LogWriter

_CHUNK = 64 * 1024
_MOST_LEFT = 64
"""The most chunks read after the end of a program: more than a pipe holds."""


class Output:
    """The two pipes of one program, and their logs `NAME.out` and `NAME.err` in `directory`.

    Raises:
        OSError: a log cannot be opened.

    """

    def __init__(self, directory: Path, name: str) -> None:
        self.writers: list[int] = []
        self._logs: dict[int, LogWriter] = {}
        self._directory, self._name = directory, f"{name}.err"
        self._notes: deque[str] = deque()
        self._noted = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            for suffix in (".out", ".err"):
                log = LogWriter(directory, f"{name}{suffix}", timed=True)
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self._logs[reader] = log
                self.writers.append(writer)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_writers()
        for reader in list(self._logs):
            self._end(reader)
        os.close(self._noted)

    def note(self, text: str) -> None:
        """Have the main thread write a line of Ullage to the standard error. Another thread may call this."""
        self._notes.append(text)
        os.eventfd_write(self._noted, 1)

    def close_writers(self) -> None:
        """Close the write ends of this process: the program has its own."""
        while self.writers:
            os.close(self.writers.pop())

    def copy_until_exit(self, pid: int) -> None:
        """Copy until the process has ended, then copy the rest in the pipes."""
        child = os.pidfd_open(pid)
        try:
            with selectors.DefaultSelector() as ready:
                for descriptor in (child, self._noted, *self._logs):
                    ready.register(descriptor, selectors.EVENT_READ)
                running = True
                while running:
                    for key, _ in ready.select():
                        if key.fd == child:
                            running = False
                        elif key.fd == self._noted:
                            os.eventfd_read(self._noted)
                            self._write_notes()
                        elif copy(key.fd, self._logs[key.fd]) == 0:
                            ready.unregister(key.fd)
                            self._end(key.fd)
        finally:
            os.close(child)
        for reader, log in list(self._logs.items()):
            if not _copy_rest(reader, log):
                self._end(reader)
        self._write_notes()
        if self._logs:
            _Background.adopt(self._logs)
            self._logs = {}

    def _write_notes(self) -> None:
        """Append the notes to the log of the standard error, also when the program has closed that."""
        if not self._notes:
            return
        log = next((log for log in self._logs.values() if log.name == self._name), None)
        writer = log or LogWriter(self._directory, self._name, timed=True)
        while self._notes:
            writer.write(note_line(self._directory / self._name, self._notes.popleft()))
        if log is None:
            writer.close()

    def _end(self, reader: int) -> None:
        os.close(reader)
        self._logs.pop(reader).close()


def copy(reader: int, log: LogWriter) -> int | None:
    """Copy at most one chunk. Return its bytes: 0 at the end, None if the pipe is empty now."""
    try:
        data = os.read(reader, _CHUNK)
    except BlockingIOError:
        return None
    log.write(data)
    return len(data)


def _copy_rest(reader: int, log: LogWriter) -> bool:
    """Copy the rest of a pipe. Return whether another process holds it open and may write more."""
    copied: int | None = 1
    for _ in range(_MOST_LEFT):
        copied = copy(reader, log)
        if not copied:
            break
    return copied != 0


class _Background:
    """One thread for all pipes that outlive their program."""

    _selector: selectors.BaseSelector | None = None

    @classmethod
    def adopt(cls, logs: dict[int, LogWriter]) -> None:
        """Copy from these descriptors until they end. Only the main thread calls this."""
        if cls._selector is None:
            cls._selector = selectors.EpollSelector()  # epoll accepts descriptors while another thread waits: epoll(7)
            threading.Thread(target=cls._copy, args=(cls._selector,), name="ullage-output", daemon=True).start()
        for reader, log in logs.items():
            cls._selector.register(reader, selectors.EVENT_READ, log)

    @staticmethod
    def _copy(selector: selectors.BaseSelector) -> None:
        while True:
            for key, _ in selector.select():
                if copy(key.fd, key.data) == 0:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    key.data.close()
