"""Times and durations as text."""

from __future__ import annotations

import time

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def show_time(seconds: float | None) -> str:
    """Return date, time and zone of seconds since the epoch; `-` for None."""
    if seconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))


def show_span(seconds: float) -> str:
    """Return a duration in its two largest units: `45s`, `3m12s`, `2h05m`, `4d03h`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def show_age(since: float, until: float | None = None) -> str:
    """Return how long ago `since` was, or how long before `until`."""
    return show_span(seconds_between(since, until))


def seconds_between(since: float, until: float | None = None) -> float:
    """Return the seconds from `since` to `until`, or to now."""
    return (time.time() if until is None else until) - since
