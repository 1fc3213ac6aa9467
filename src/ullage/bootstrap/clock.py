"""The clock of a server: it never jumps, and a jump of the machine's clock is reported."""

from __future__ import annotations

import time
from collections.abc import Callable

from ullage.bootstrap import log

_JUMP_S = 5.0
"""Seconds by which the two clocks differ more or less than before, so that it is reported."""


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since the epoch that never jumps: the wall clock once, then monotonic time."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


class ClockWatch:
    """Logs when the clock of the machine was set, or stood still in a suspension: the server does not follow it."""

    def __init__(self, own: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        self._own, self._wall = own, wall
        self._known_s = 0.0

    def check(self) -> None:
        """Log the difference of the clocks if it has changed."""
        ahead_s = self._wall() - self._own()
        if abs(ahead_s - self._known_s) < _JUMP_S:
            return
        self._known_s = ahead_s
        note = "the clock of the machine was set, or stood still: times of this server differ by this until its restart"
        log.warning("clock.jumped", machine_ahead_s=round(ahead_s), note=note)
