"""States, fields and times of Slurm, each with what is meant here. Its options are refused: `slurm_hints`."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from datetime import datetime, timedelta

# --- states ---

_MEANT_STATES = {
    "pd": ("pending",),
    "r": ("running",),
    "cg": ("running",),
    "cd": ("succeed", "closed"),
    "completed": ("succeed", "closed"),
    "f": ("failed",),
    "to": ("failed",),
    "timeout": ("failed",),
    "ca": ("cancelled",),
    "nf": ("lost",),
    "node-fail": ("lost",),
    "oom": ("failed",),
    "out-of-memory": ("failed",),
    "completing": ("running",),
    "waiting": ("pending",),
    "idle": ("ready", "free"),
    "alloc": ("ready", "used"),
    "allocated": ("ready", "used"),
    "mix": ("ready", "partial"),
    "mixed": ("ready", "partial"),
    "up": ("ready",),
    "down": ("not-ready",),
    "drain": ("cordoned",),
    "drained": ("cordoned",),
    "draining": ("cordoned",),
}


def state_of(text: str, known: Sequence[str]) -> str:
    """Return the state that is meant by one of Slurm, such as `PD`; the text itself if it is none."""
    return next((state for state in _MEANT_STATES.get(text, ()) if state in known), text)


# --- fields ---

_MEANT_FIELDS = {
    "id": ("jobid", "jobidraw", "jobname", "name", "job", "arrayjobid"),
    "owner": ("user", "username"),
    "queue": ("partition", "account", "qos"),
    "state": ("st", "statecompact"),
    "time": ("timeused", "elapsed"),
    "time-limit": ("timelimit", "timelimitraw"),
    "time-left": ("timeleft",),
    "ran": ("elapsed", "elapsedraw", "time"),
    "took": ("elapsed", "time"),
    "waited": ("planned", "reserved"),
    "peak": ("maxrss", "mem-peak"),
    "code": ("exitcode",),
    "created": ("submit", "submittime"),
    "started": ("start", "starttime"),
    "ended": ("end", "endtime"),
    "request": ("reqtres", "alloctres", "reqmem", "reqcpus", "alloccpus", "ncpus", "tres", "cpus", "nodes"),
    "prio": ("prioritylong",),
}
"""Fields by their names in Slurm. Of a name that two have the first one counts that a listing has."""


def field_of(name: str, known: Container[str]) -> str:
    """Return the field that is meant by one of Slurm, such as `jobid`; the name itself if it is none."""
    if name in known:
        return name
    return next((field for field, names in _MEANT_FIELDS.items() if name in names and field in known), name)


# --- times ---

_NOW = re.compile(r"now(?:([+-])([0-9]{1,9}) *([a-z]*))?", re.ASCII)
_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}


def time_of(text: str, now: float, *, past: bool) -> float | None:
    """Return the seconds since the epoch of `now-2days`, `tomorrow` (its begin) or `noon`; None for other forms.

    A time of the day is the next one, or with `past` the last one.
    """
    word = text.strip().lower()
    if (match := _NOW.fullmatch(word)) is not None:
        sign, number, unit = match.groups(default="")
        seconds = _UNITS.get(unit.removesuffix("s"))
        if seconds is None:
            return None
        return now + int(f"{sign}{number or 0}") * seconds
    begin = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)  # noqa: DTZ006  # local time is meant
    if word in _DAYS:
        return (begin + timedelta(days=_DAYS[word])).timestamp()
    if word in _HOURS:
        at = begin.replace(hour=_HOURS[word])
        if past and at.timestamp() > now:
            at -= timedelta(days=1)
        elif not past and at.timestamp() <= now:
            at += timedelta(days=1)
        return at.timestamp()
    return None
