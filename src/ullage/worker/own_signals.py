"""Signals for a task that runs in the worker process itself."""

from __future__ import annotations

import os
import signal
import threading
from typing import Protocol, runtime_checkable

from ullage.model.early_signal import NAMES
from ullage.wire.log_note import note_line
from ullage.worker import log_directory
from ullage.worker.context import context


@runtime_checkable
class Signalled(Protocol):
    """A service that passes signals on to its programs. Another thread than the main one calls it, during a task."""

    def on_signal(self, number: int, text: str) -> None:
        """Write the text to the log of the task, and send the signal to its program."""


class OwnSignals:
    """Signals the main thread, if the task has set a handler of its own: the usual one would end the worker."""

    def __init__(self) -> None:
        self._usual = {number: signal.getsignal(number) for number in _numbers()}

    def send(self, number: int, text: str, task: int) -> None:
        """Write the text to the log of the task, and send the signal."""
        handled = signal.getsignal(number) != self._usual.get(number)
        shown = text if handled else f"{text} (not sent: the task has no handler for it)"
        line = f"ullage: {shown}\n".encode()
        if log_directory.ROOT in os.environ:
            line = note_line(log_directory.log_directory(context()) / f"{task}.err", shown)
        os.write(2, line)
        if handled:
            signal.pthread_kill(threading.main_thread().ident or 0, number)


def _numbers() -> list[int]:
    return [signal.Signals[f"SIG{name}"].value for name in NAMES]
