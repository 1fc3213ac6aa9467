"""How long a client waits for a server that does not answer, and what it raises then."""

from __future__ import annotations

import time
from collections.abc import Callable

from ullage.client.silence import GONE_S, Silence
from ullage.model.error import UllageError, Unavailable

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class NotConnected(Unavailable):
    """The request was not sent, so any request may be repeated."""


class NotAnswered(Unavailable):
    """A server accepted the request, but did not answer in time."""


class Patience:
    """Pauses between attempts, each twice as long as the one before, until `seconds` pass without success."""

    def __init__(
        self,
        seconds: float,
        sleep: Callable[[float], None] = time.sleep,
        silence: Silence | None = None,
        show: Callable[[str], object] | None = None,
    ) -> None:
        """`show` gets the report of a long wait in a program that does not set `Silence.show`."""
        self._seconds = seconds
        self._sleep = sleep
        self._silence = silence
        self._show = show
        self._ends = 0.0
        self._restart()

    def renew(self) -> None:
        """Start again after a success."""
        self._restart()
        if self._silence is not None:
            self._silence.end()

    def shorten(self, seconds: float) -> None:
        """Wait at most `seconds` without success from now on."""
        self._seconds = min(self._seconds, seconds)
        self._ends = min(self._ends, time.monotonic() + self._seconds)

    def _restart(self) -> None:
        self._ends = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, reason: UllageError) -> None:
        """Pause before the next attempt.

        Raises:
            UllageError: `reason`, when the time is over.

        """
        left_s = self._ends - time.monotonic()
        if self._pause > left_s:
            raise reason
        unanswered = isinstance(reason, NotAnswered)  # which took its time already
        if self._silence is not None and (unanswered or self._seconds - left_s >= GONE_S):
            self._silence.report(reason.message if unanswered else "no server answers", left_s, self._show)
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
