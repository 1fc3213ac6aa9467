"""Times and durations as text."""

from __future__ import annotations

import re
import time

from ullage.cli.exits import caution
from ullage.model.duration import parse_duration
from ullage.model.error import invalid
from ullage.model.session_state import NEVER

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_AGO = frozenset("smhd")
"""The last letters of durations."""
_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d", re.ASCII)


def show_time(seconds: float | None) -> str:
    """Return date, time and zone of seconds since the epoch; `-` for None."""
    if seconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))


def show_clock(seconds: float, now: float) -> str:
    """Return the time of day of seconds since the epoch, with the date unless it is today."""
    then, today = time.localtime(seconds), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", then)


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


def parse_past(text: str, now: float, field: str) -> float:
    """Return the time of `2d` (two days ago), `2026-12-01` or `2026-12-01T08:00`, in seconds since the epoch.

    A time without a zone is in local time. The forms of Slurm, such as `yesterday` and `now-2days`, are read too.

    Raises:
        InvalidRequest: the text has another form.

    """
    from datetime import datetime  # noqa: PLC0415  # most verbs read no times

    from ullage.cli.slurm import time_of  # noqa: PLC0415  # as above

    if (at := time_of(text, now, past=True)) is not None:
        return max(0.0, at)
    try:
        if text[-1:] in _AGO:
            return max(0.0, now - parse_duration(text, field))
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        fix = "write how long ago, as 90m, 12h or 2d, or yesterday, or a day as 2026-12-01, or 2026-12-01T08:00"
        raise invalid(field, text, fix) from None


def begin_at(text: str, now: float) -> float:
    """Return `parse_begin`; print a warning of a time that is over."""
    if (at := parse_begin(text, now)) < now:
        caution([f"{show_time(at)} is over: it begins at once"])
    return at


def parse_begin(text: str, now: float) -> float:
    """Return the time of `2026-12-01T08:00`, `08:00` (the next), `+2h` or `never`, in seconds since the epoch.

    A time without a zone is in local time. The forms of Slurm, such as `tomorrow` and `now+2hours`, are read too.

    Raises:
        InvalidRequest: the text has another form.

    """
    from datetime import datetime, timedelta  # noqa: PLC0415  # most verbs read no times

    from ullage.cli.slurm import time_of  # noqa: PLC0415  # as above

    if (at := time_of(text, now, past=False)) is not None:
        return at
    if text == "never":
        return NEVER
    if text.startswith("+"):
        return now + parse_duration(text[1:], "begin")
    try:
        if _CLOCK.fullmatch(text):
            today = datetime.fromtimestamp(now)  # noqa: DTZ006  # local time is meant
            hour, minute = map(int, text.split(":"))
            clock = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (clock if clock.timestamp() > now else clock + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        fix = "write 2026-12-01T08:00, the time of day as 08:00, tomorrow, +2h for two hours from now, or never"
        raise invalid("begin", text, fix) from None
