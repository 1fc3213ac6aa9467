"""What Slurm spells otherwise: options, states and times, each with what is meant here.

Times and states are read. An option of Slurm is refused with the option that is meant, because some letters have
another meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from ullage.model.dependency import OF_SLURM

# --- options ---


class Spelling(NamedTuple):
    """Options of Slurm, and a function from their value to the words that are meant here."""

    options: tuple[str, ...]
    meant: Callable[[str], str]


def _as(words: str, value: str) -> str:
    return words.format(value=value or "VALUE")


def _says(words: str) -> Callable[[str], str]:
    return partial(_as, words)


def _dependency(value: str) -> str:
    """Return `--after ok:7` for `afterok:7`."""
    kind, _, job = value.partition(":")
    return f"--after {OF_SLURM.get(kind, 'ok')}:{job or 'ID'}"


def _gres(value: str) -> str:
    """Return `--gpus 2` for `gpu:2`, and a request for `gpu:a100:2`."""
    kind, *rest = value.split(":")
    if kind != "gpu":
        return "-r gpu=0.5 or -r vram=20g"
    *models, count = rest or ["1"]
    if not count.isdecimal():
        models, count = [count], "1"
    return f"-r gpu={count},gpu_model={models[0].upper()}" if models else f"--gpus {count}"


_QUEUE = Spelling(("-p", "--partition", "-A", "--account"), _says("-q {value}"))
_STATES = Spelling(("-t", "--states"), _says("--state {value}"))

_OF_JOBS = (
    Spelling(("-c", "--cpus-per-task"), _says("--cpus {value}")),
    Spelling(("-d", "--dependency"), _dependency),
    Spelling(("-J", "--job-name"), _says("-n {value}")),
    Spelling(("--gres",), _gres),
    Spelling(("-G", "--gpus-per-node", "--gpus-per-task"), _says("--gpus {value}")),
    Spelling(("--mem-per-cpu", "--mem-per-gpu"), _says("--mem SIZE, for all of it")),
    Spelling(("-o", "--output", "--error"), _says("ullage logs ID > {value}, after the start")),
    Spelling(("-D", "--chdir"), _says("cd {value}, before the start")),
    Spelling(("--export",), _says("-e NAME=VALUE, or --export-all")),
    Spelling(("--mail-type", "--mail-user"), _says("--notify URL, or --notify-command")),
    Spelling(("--qos", "--nice"), _says("-p N")),
    Spelling(("--wrap",), _says("-- sh -c '{value}'")),
    Spelling(("-w", "--nodelist", "-C", "--constraint"), _says("-r ...,gpu_model=MODEL or gpu_index=N")),
    _QUEUE,
)
_OF_SESSIONS = (
    Spelling(("-S",), _says("--sort {value}")),
    Spelling(("-i", "--iterate"), _says("--watch --every {value}s")),
    Spelling(("-l", "--long"), _says("-o wide")),
    Spelling(("-j", "--jobs"), _says("ullage show session {value}")),
    _STATES,
    _QUEUE,
)
_OF_HISTORY = (
    Spelling(("-S", "--starttime"), _says("--since {value}")),
    Spelling(("-E", "--endtime"), _says("--until {value}")),
    Spelling(("-s",), _says("--state {value}")),
    Spelling(("-j", "--jobs"), _says("ullage show session {value}")),
    _QUEUE,
)
_BY_VERB: dict[str, Sequence[Spelling]] = {
    "run": _OF_JOBS,
    "submit": _OF_JOBS,
    "queue": _OF_SESSIONS,
    "sessions": _OF_SESSIONS,
    "history": _OF_HISTORY,
    "usage": _OF_HISTORY,
    "tasks": (_STATES,),
    "cancel": (_STATES, _QUEUE),
}


def meant_by(verb: str, words: Sequence[str], wrong: Callable[[str], bool]) -> str:
    """Return a hint for the first option of Slurm in a command line: `-c 4 of Slurm is written --cpus 4 here; `.

    `wrong` says which words are refused. The hint is empty if none of them is Slurm's.
    """
    known = {option: spelling for spelling in _BY_VERB.get(verb, ()) for option in spelling.options}
    for place, word in enumerate(takewhile("--".__ne__, words)):
        option, joined, value = word.partition("=")
        if not word.startswith("--") and len(word) > len("-c"):  # -c4
            option, joined, value = word[:2], "", word[2:]
        if option not in known or not wrong(word):
            continue
        if not joined and not value:
            value = next((each for each in words[place + 1 : place + 2] if not each.startswith("-")), "")
        typed = f"{option}={value}" if joined else f"{option} {value}".strip()
        return f"{typed} of Slurm is written {known[option].meant(value)} here; "
    return ""


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
    "waiting": ("pending",),
}


def state_of(text: str, known: Sequence[str]) -> str:
    """Return the state that is meant by one of Slurm, such as `PD`; the text itself if it is none."""
    return next((state for state in _MEANT_STATES.get(text, ()) if state in known), text)


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
