"""Durations as text, in the forms of Slurm, of Kubernetes, and of people."""

from __future__ import annotations

import re

from ullage.model.error import invalid

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PIECE = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|[smhdw])"
_PIECES = re.compile(_PIECE, re.ASCII)
_WITH_UNITS = re.compile(rf"(?:{_PIECE})+", re.ASCII)
_PLAIN = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)
_CLOCK = re.compile(
    r"(?:(?P<d>[0-9]{1,6})-(?P<h>[0-9]{1,2})(?::(?P<m>[0-9]{1,2})(?::(?P<s>[0-9]{1,2}))?)?"
    r"|(?:(?P<hours>[0-9]{1,6}):)?(?P<minutes>[0-9]{1,6}):(?P<seconds>[0-9]{1,2}))",
    re.ASCII,
)
_CLOCK_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "hours": 3600, "minutes": 60, "seconds": 1}

FORMS = "90, 90s, 30m, 1h30m, 2d, 1:30:00 or 2-00:00"
"""Examples of what `parse_duration` reads."""


def parse_duration(text: str, field: str = "time-limit") -> float:
    """Return the seconds of a duration above zero.

    A plain number counts seconds. `1:30:00` is hours, minutes, seconds; `1:30` minutes, seconds; `2-12`, `2-12:30` and
    `2-12:30:00` begin with days, as in Slurm.

    Raises:
        InvalidRequest: the text has another form, or the duration is zero.

    """
    word = text.strip().lower()
    seconds = _seconds(word)
    if not seconds:
        raise invalid(field, text, f"write seconds, or a duration above zero such as {FORMS}")
    return seconds


def _seconds(word: str) -> float:
    """Return seconds; 0 if the word has no form of a duration."""
    if _PLAIN.fullmatch(word):
        return float(word)
    if _WITH_UNITS.fullmatch(word):
        return sum(float(number) * _SECONDS[unit] for number, unit in _PIECES.findall(word))
    clock = _CLOCK.fullmatch(word)
    if clock is None:
        return 0.0
    return float(sum(int(digits) * _CLOCK_UNITS[name] for name, digits in clock.groupdict().items() if digits))


def duration_text(seconds: float) -> str:
    """Return a duration as `parse_duration` reads it, such as `7d` or `1d12h`, in whole seconds."""
    left, found = round(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        found += f"{count}{unit}" if count else ""
    return found or "0s"
