"""The signal that a program gets some time before its end, to save its work: `USR1@60`."""

from __future__ import annotations

import signal
from functools import lru_cache
from typing import NamedTuple

from ullage.model.duration import FORMS, parse_duration
from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import one_of

USUAL_BEFORE_S = 60.0
"""Seconds before the end if none are given."""

NAMES = ("USR1", "USR2", "HUP", "INT", "QUIT", "ALRM", "TERM")
"""The signals that a program may be sent: those that it can handle, and that have no other meaning here."""

_FORM = "write a signal and the time before the end, such as USR1@60 or TERM@2m"
_NOT_HANDLED = ("KILL", "STOP")


class EarlySignal(NamedTuple):
    """A signal by its name without SIG, and how many seconds before the end it is sent."""

    name: str
    before_s: float

    @property
    def number(self) -> int:
        """Its number on this machine."""
        return signal.Signals[f"SIG{self.name}"].value


@lru_cache(maxsize=256)
def parse_signal(text: str, field: str = "signal") -> EarlySignal:
    """Return the signal of `NAME@TIME`; the time is 60 s if it is left out.

    The name may begin with SIG, and be a number. `B:` before it, as in Slurm, changes nothing.

    Raises:
        InvalidRequest: no such signal can be sent, or the time is no duration.

    """
    word, at, time = text.strip().partition("@")
    name = word.upper().removeprefix("B:").removeprefix("SIG")
    if not name:
        raise invalid(field, text, _FORM)
    if name.isascii() and name.isdigit():
        name = _name_of(int(name))
    if name in _NOT_HANDLED:
        raise invalid(field, text, f"no program can handle {name}; choose one of {', '.join(NAMES)}")
    if name not in NAMES:
        raise invalid(field, text, f"{one_of(name, NAMES)}; {_FORM}")
    try:
        return EarlySignal(name, parse_duration(time) if at else USUAL_BEFORE_S)
    except InvalidRequest:
        fix = f"the time after @ is in seconds, or a duration above zero such as {FORMS}"
        raise invalid(field, text, fix) from None


def check_signal(text: str | None, limit_s: float | None) -> None:
    """Refuse a signal that is due before the program starts.

    Raises:
        InvalidRequest: its time is not below the time limit.

    """
    if text is None or limit_s is None:
        return
    asked = parse_signal(text)
    if asked.before_s >= limit_s:
        fix = f"its time limit is {limit_s:g} s, so {asked.before_s:g} s before it the program has not started"
        raise invalid("signal", text, f"{fix}; ask for less than {limit_s:g} s")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
