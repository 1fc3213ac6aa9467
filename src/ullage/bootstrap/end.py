"""The end of a server: who or what asked for it, and the wait for that."""

from __future__ import annotations

import asyncio
import signal
import traceback

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

    def watch_signals(self) -> None:
        """End at the signals by which an operator, a terminal or systemd ends a server."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.begin, f"the signal {number.name}")

    async def wait(self) -> None:
        """Wait for the first reason."""
        await self._begun.wait()
