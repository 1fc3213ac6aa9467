"""The end of a server: who or what asked for it, and the wait for that."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable

from ullage.bootstrap import log

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class End:
    """Waits until the server has to end. The first reason counts, and is logged."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self.failure: BaseException | None = None

    def begin(self, reason: str) -> None:
        """End the server for this reason."""
        if not self._begun.is_set():
            log.info("server.ending", reason=reason)
        self._begun.set()

    def fail(self, error: BaseException) -> None:
        """End the server, because an error may have left its memory half changed."""
        if self.failure is None:
            log.error("server.fault", error="".join(traceback.format_exception(error)))
            self.failure = error
        self.begin(f"an error: {type(error).__name__}")

    def watch_signals(self, on_hangup: Callable[[], None]) -> None:
        """End at the signals by which an operator, a terminal or systemd ends a server.

        A hangup says that the terminal of the server is gone. Without one it is sent by hand, to have settings read or
        a log opened again: then `on_hangup` is called. Under nohup(1) it stays ignored.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.begin, f"the signal {number.name}")
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up, on_hangup, has_terminal())

    def _hang_up(self, on_hangup: Callable[[], None], had_terminal: bool) -> None:
        if had_terminal:
            self.begin("the signal SIGHUP: its terminal is gone")
        else:
            on_hangup()

    async def wait(self) -> None:
        """Wait for the first reason."""
        await self._begun.wait()


def has_terminal() -> bool:
    """Return whether this process has a terminal whose end is a hangup."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
