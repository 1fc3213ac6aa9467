"""Sentences for users on why a worker ended."""

from __future__ import annotations

import signal
from pathlib import Path

from ullage.wire import output_log

TAIL_BYTES = 2048
"""The most bytes of a worker's standard error that are shown."""


def ended(status: int | None) -> str:
    """Return how a process ended; `status` is an exit code, negative for a signal."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-status}"


def with_tail(text: str, log: Path) -> str:
    """Return `text` and the last whole lines of the worker's standard error, at most `TAIL_BYTES`."""
    data = output_log.read_tail(log, TAIL_BYTES + 1)
    if len(data) > TAIL_BYTES:
        _, _, data = data.partition(b"\n")
    tail = data.decode(errors="replace").strip()
    return f"{text}; the end of its standard error:\n{tail}" if tail else text
