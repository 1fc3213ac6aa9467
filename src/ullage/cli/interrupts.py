"""Signals during `ullage run` and `ullage demo`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

from ullage.cli.exits import KILLED_BY, complain

_HARMLESS = (
    signal.SIGCHLD,
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""Signals that do not end a process: signal(7)."""
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
_UNSTOPPABLE = (signal.SIGKILL, signal.SIGSTOP)
_ENDING = sorted(signal.valid_signals().difference(_HARMLESS, _FAULTS, _UNSTOPPABLE))


class Interrupts:
    """A context that catches each signal that ends a process, except those ignored at its start.

    In a block of `cancelling` the first signal calls its function in a thread, so that the output is complete. Any
    other signal raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._cancels: Callable[[], object] | None = None
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int] = {}
        self._first: int | None = None

    def __enter__(self) -> Self:
        for number in _ENDING:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):  # as under nohup(1), and in the background of a shell
                self._before[number] = before
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Have the first signal call `cancel` during the block."""
        self._cancels = cancel
        try:
            yield
        finally:
            self._cancels = None

    @property
    def code(self) -> int | None:
        """The exit code after a signal; None without one."""
        return None if self._first is None else KILLED_BY + self._first

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        again, self._first = self._first is not None, self._first or number
        if again or self._cancels is None:
            raise KeyboardInterrupt
        # In a thread: the main thread may be in the middle of a request, and must copy the rest of the output.
        threading.Thread(target=self._cancel, args=(self._cancels,)).start()

    @staticmethod
    def _cancel(cancel: Callable[[], object]) -> None:
        with suppress(OSError):  # the terminal may be gone
            complain("cancelling; press Ctrl-C again to quit at once")
        cancel()
