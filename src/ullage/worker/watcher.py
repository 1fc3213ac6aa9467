"""Sees to it that a long task holds nothing back.

Short tasks never notice the watcher: while batches come and go it looks at the clock every few
milliseconds, and after a quiet moment it sleeps until the next batch. Once a batch runs long it
sends the outcomes that are there, gives back what is not started, and then waits, without
polling, for frames that arrive behind the long task, whose tasks it gives back too.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time

from ullage.worker.line import Line

LONG_S = 0.010
"""Seconds after which a batch runs long."""

_TICK_S = 0.005
_QUIET_TICKS = 20


class Watcher:
    """A daemon thread beside the main one, which calls `begin` and `end` around each batch."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._started: float | None = None  # monotonic seconds; also tells one batch from the next
        self._asleep = False
        self._wake = threading.Event()
        self._waiting = False
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._watch, name="ullage-watcher", daemon=True).start()

    def begin(self) -> None:
        """A batch starts."""
        self._started = time.monotonic()
        if self._asleep:
            self._wake.set()

    def end(self) -> None:
        """The batch ended."""
        self._started = None
        if self._waiting:
            os.eventfd_write(self._ended, 1)

    def _watch(self) -> None:
        try:
            while True:
                self._sleep()
                self._watch_batches()
        except OSError:
            return  # the stream is closed: the main thread sees that too, and ends the process

    def _sleep(self) -> None:
        # `begin` writes the time before it reads the flag; here it is the other way round, so one of
        # the two sees the other and no wake-up is lost.
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
                self._attend(started)

    def _attend(self, started: float) -> None:
        """Keep outcomes and tasks moving until the batch begun at `started` ends."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        self._line.flush()
        self._line.give_back()
        self._waiting = True
        try:
            while self._started == started:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if self._ended in ready:  # left by this batch, or by one before it that ended in between
                    os.eventfd_read(self._ended)
                elif not self._line.receive(socket.MSG_DONTWAIT):
                    os.kill(os.getpid(), signal.SIGTERM)  # the engine is gone: nobody wants the result
                    poll.unregister(self._line)
                elif self._started == started:
                    self._line.give_back()
        finally:
            self._waiting = False
