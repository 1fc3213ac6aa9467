"""Times and durations as text."""

from __future__ import annotations

import time

from ullage.model.error import invalid

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY}


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
    return show_span((time.time() if until is None else until) - since)


def parse_duration(text: str, field: str = "time-limit") -> float:
    """Return the seconds of `90`, `90s`, `30m`, `12h` or `2d`.

    Raises:
        InvalidRequest: the text has another form, or the duration is zero.

    """
    unit = _UNITS.get(text[-1:], 0)
    number = text[:-1] if unit else text
    if not (number.isascii() and number.isdecimal()) or not int(number):
        raise invalid(field, text, "write seconds, or a number with s, m, h or d, such as 90, 30m or 2d")
    return float(int(number) * (unit or 1))
