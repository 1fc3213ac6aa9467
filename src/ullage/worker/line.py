"""The worker's end of the stream to its engine, shared by the main thread and the watcher.

What arrives waits in `inbox`. The tasks of one `Run` frame are one `Batch`, a deque: both threads
take tasks from its left, so that each task is either started or given back, never both.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from typing import NamedTuple

from ullage.model.task import SHARED_KEPT
from ullage.wire import frames
from ullage.worker.service import Task

_CHUNK = 64 * 1024
"""Bytes read at once: below malloc's mmap threshold, so that a read costs no page faults."""

_FLUSH_BYTES = 4 << 20
"""Bytes of waiting outputs above which they are sent at once."""


class Job(NamedTuple):
    """A task, and the claim under which it was handed out."""

    claim: int
    task: Task


Batch = deque[Job]


class Line:
    """Frames in and out. Owns `connection`."""

    def __init__(self, connection: socket.socket) -> None:
        self.inbox: deque[frames.Enter | frames.Leave | Batch] = deque()
        self._connection = connection
        self._reader = frames.FrameReader.to_worker()
        self._reading = threading.Lock()
        self._sending = threading.Lock()
        self._shared: dict[int, bytes] = {}
        self._done: list[frames.Outcome] = []
        self._done_bytes = 0

    @classmethod
    def connect(cls, path: str, executor: str, secret: str) -> Line:
        """Connect to the engine's socket at `path` and say hello.

        Raises:
            OSError: nobody listens there.

        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            line = cls(connection)
            line.send(frames.Hello(frames.PROTOCOL, executor, secret, os.getpid()))
        except BaseException:
            connection.close()
            raise
        return line

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close this process's end."""
        self._connection.close()

    def receive(self, flags: int = 0) -> bool:
        """Wait for bytes and put the frames they complete into the inbox; False at the end of the stream.

        With `MSG_DONTWAIT` in `flags`, do not wait.

        Raises:
            FrameError: the stream is damaged.

        """
        with self._reading:
            try:
                data = self._connection.recv(_CHUNK, flags)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            for frame in self._reader.feed(data):
                self.inbox.append(self._arrived(frame))
        return bool(data)

    def send(self, frame: frames.FromWorker) -> None:
        """Send one frame."""
        with self._sending:
            self._connection.sendall(frames.encode(frame))

    def add(self, outcome: frames.Outcome) -> None:
        """Keep an outcome for the next flush. For the main thread only."""
        self._done.append(outcome)
        self._done_bytes += len(outcome.output or b"")

    @property
    def full(self) -> bool:
        """Whether what is kept had better be sent."""
        return self._done_bytes > _FLUSH_BYTES

    def flush(self) -> None:
        """Send the outcomes that are kept."""
        with self._sending:
            # Only `add` works on the list meanwhile, and only at its end.
            count = len(self._done)
            if count:
                outcomes, self._done_bytes = self._done[:count], 0
                del self._done[:count]
                for part in _portions(outcomes):
                    self._connection.sendall(frames.encode(frames.Done(part)))

    def give_back(self) -> None:
        """Return every task that is not started. Under the lock: `Left` cannot overtake it."""
        with self._sending:
            claims = [job.claim for item in list(self.inbox) if isinstance(item, deque) for job in _drain(item)]
            if claims:
                self._connection.sendall(frames.encode(frames.GaveBack(claims)))

    def _arrived(self, frame: frames.ToWorker) -> frames.Enter | frames.Leave | Batch:
        if not isinstance(frame, frames.Run):
            self._shared.clear()
            return frame
        return deque(Job(task.claim, self._resolve(task)) for task in frame.tasks)

    def _resolve(self, task: frames.HandOut) -> Task:
        """Return the task with its shared data, which came with it or with an earlier one."""
        if task.shared_id is None:
            return Task(task.task, task.input)
        if task.shared is not None:
            self._shared[task.shared_id] = task.shared
            while len(self._shared) > SHARED_KEPT:
                del self._shared[next(iter(self._shared))]
        return Task(task.task, task.input, task.shared_id, self._shared.get(task.shared_id))


def _drain(batch: Batch) -> list[Job]:
    jobs = []
    try:
        while True:
            jobs.append(batch.popleft())
    except IndexError:
        return jobs


def _portions(outcomes: list[frames.Outcome]) -> list[list[frames.Outcome]]:
    """`outcomes` cut so that no frame holds two large outputs: together they could exceed its limit."""
    if not any(outcome.output and len(outcome.output) > _FLUSH_BYTES for outcome in outcomes):
        return [outcomes]
    return [[outcome] for outcome in outcomes]
