"""Keeps a long task from delaying outcomes and other tasks.

While batches run, the watcher checks the clock every few milliseconds; without batches it sleeps. During a long batch
it sends the finished outcomes and returns the tasks that are not started. Then it waits, without polling, for further
frames, and returns their tasks too. Signals among them go to the running task.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable

from ullage.wire import frames
from ullage.worker.stream import WorkerStream

LONG_S = 0.010
"""Seconds after which a batch runs long."""

_TICK_S = 0.005
_QUIET_TICKS = 20


class Watcher:
    """A daemon thread. The main thread calls `begin` and `end` around each batch; `deliver` passes on a signal."""

    def __init__(self, stream: WorkerStream, deliver: Callable[[frames.Signal], None]) -> None:
        self._stream, self._deliver = stream, deliver
        self._started: float | None = None  # monotonic seconds; also distinguishes batches
        self._asleep = False
        self._wake = threading.Event()
        self._waiting = False
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._watch, name="ullage-watcher", daemon=True).start()

    def begin(self) -> None:
        """Note the start of a batch."""
        self._started = time.monotonic()
        if self._asleep:
            self._wake.set()

    def end(self) -> None:
        """Note the end of the batch."""
        self._started = None
        if self._waiting:
            os.eventfd_write(self._ended, 1)

    def _watch(self) -> None:
        try:
            while True:
                self._sleep()
                self._watch_batches()
        except OSError:
            return  # the stream is closed, upon which the main thread ends the process

    def _sleep(self) -> None:
        # `begin` writes the time before it reads the flag; this method does the reverse. So no wake-up is lost.
        self._asleep = True
        if self._started is None:
            self._wake.wait()
        self._asleep = False
        self._wake.clear()

    def _watch_batches(self) -> None:
        quiet = 0
        while quiet < _QUIET_TICKS:
            time.sleep(_TICK_S)
            started = self._started
            if started is None:
                quiet += 1
                continue
            quiet = 0
            if time.monotonic() - started >= LONG_S:
                self._watch_long_batch(started)

    def _watch_long_batch(self, started: float) -> None:
        """Send outcomes and return tasks until the batch that started at `started` ends."""
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        self._stream.flush()
        self._stream.return_tasks()
        self._waiting = True
        try:
            self._deliver_signals()
            while self._started == started:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if self._ended in ready:  # from this batch, or from an earlier one that ended in between
                    os.eventfd_read(self._ended)
                elif not self._stream.receive(socket.MSG_DONTWAIT):
                    os.kill(os.getpid(), signal.SIGTERM)  # the engine is gone, so the result is of no use
                    poll.unregister(self._stream)
                else:
                    self._deliver_signals()
                    if self._started == started:
                        self._stream.return_tasks()
        finally:
            self._waiting = False

    def _deliver_signals(self) -> None:
        while self._stream.signals:
            self._deliver(self._stream.signals.popleft())
