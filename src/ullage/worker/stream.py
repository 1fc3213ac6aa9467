"""The connection of a worker to its engine, shared by the main thread and the watcher.

Received items wait in `inbox`, signals for the running task in `signals`. The tasks of one `Run` frame are one
`Batch`, a deque: both threads take tasks from its left, so that each task is either started or returned, never both.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from typing import NamedTuple

from ullage.model.task import MAX_SHARED_DATA
from ullage.wire import frames
from ullage.worker.service import Task

_CHUNK = 64 * 1024
"""Bytes read at once: below the mmap threshold of malloc, so that a read causes no page faults."""

_FLUSH_BYTES = 4 << 20
"""Bytes of collected outputs above which they are sent."""


class Job(NamedTuple):
    """A task, and the claim under which it was handed out."""

    claim: int
    task: Task


Batch = deque[Job]


class WorkerStream:
    """Receives and sends frames. Owns `connection`."""

    def __init__(self, connection: socket.socket) -> None:
        self.inbox: deque[frames.Enter | frames.Leave | Batch] = deque()
        self.signals: deque[frames.Signal] = deque()
        self._socket = connection
        self._reader = frames.FrameReader.to_worker()
        self._reading = threading.Lock()
        self._sending = threading.Lock()
        self._shared: dict[int, bytes] = {}
        self._done: list[frames.Outcome] = []
        self._done_bytes = 0

    @classmethod
    def connect(cls, path: str, executor: str, secret: str) -> WorkerStream:
        """Connect to the engine's socket at `path` and authenticate.

        Raises:
            OSError: no engine listens there.

        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            stream = cls(connection)
            stream.send(frames.Hello(frames.PROTOCOL, executor, secret, os.getpid()))
        except BaseException:
            connection.close()
            raise
        return stream

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this process's end."""
        self._socket.close()

    def receive(self, flags: int = 0) -> bool:
        """Wait for bytes and put the frames that they complete into the inbox. Return False at the end of the stream.

        Do not wait with `MSG_DONTWAIT` in `flags`, nor if the other thread has filled the inbox meanwhile.

        Raises:
            FrameError: the stream is damaged.

        """
        with self._reading:
            if self.inbox and not flags & socket.MSG_DONTWAIT:
                return True
            try:
                data = self._socket.recv(_CHUNK, flags)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            for frame in self._reader.feed(data):
                if isinstance(frame, frames.Signal):
                    self.signals.append(frame)
                else:
                    self.inbox.append(self._arrived(frame))
        return bool(data)

    def send(self, frame: frames.FromWorker) -> None:
        """Send a frame."""
        with self._sending:
            self._socket.sendall(frames.encode(frame))

    def add(self, outcome: frames.Outcome) -> None:
        """Collect an outcome for the next flush. Only the main thread calls this."""
        self._done.append(outcome)
        self._done_bytes += len(outcome.output or b"")

    @property
    def full(self) -> bool:
        """Whether the collected outcomes should be sent now."""
        return self._done_bytes > _FLUSH_BYTES

    def flush(self) -> None:
        """Send the collected outcomes."""
        with self._sending:
            # Meanwhile only `add` changes the list, and only at its end.
            count = len(self._done)
            if count:
                outcomes, self._done_bytes = self._done[:count], 0
                del self._done[:count]
                for part in _portions(outcomes):
                    self._socket.sendall(frames.encode(frames.Done(part)))

    def return_tasks(self) -> None:
        """Return every task that is not started to the engine. The lock keeps `Left` behind it."""
        with self._sending:
            claims = [job.claim for item in list(self.inbox) if isinstance(item, deque) for job in _drain(item)]
            if claims:
                self._socket.sendall(frames.encode(frames.GaveBack(claims)))

    def _arrived(self, frame: frames.Enter | frames.Leave | frames.Run) -> frames.Enter | frames.Leave | Batch:
        if not isinstance(frame, frames.Run):
            self._shared.clear()
            return frame
        return deque(Job(task.claim, self._resolve(task)) for task in frame.tasks)

    def _resolve(self, task: frames.HandOut) -> Task:
        """Return the task with its shared data, which it or an earlier task brought."""
        if task.shared_id is None:
            return Task(task.task, task.input)
        if task.shared is not None:
            self._shared[task.shared_id] = task.shared
            while len(self._shared) > MAX_SHARED_DATA:
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
    """Return the outcomes by frame: two large outputs in one frame could exceed its limit."""
    if not any(outcome.output and len(outcome.output) > _FLUSH_BYTES for outcome in outcomes):
        return [outcomes]
    return [[outcome] for outcome in outcomes]
