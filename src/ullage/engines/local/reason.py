"""Why a worker is gone, in words for its user."""

from __future__ import annotations

import signal
from pathlib import Path

from ullage.wire import output_log

TAIL_BYTES = 2048
"""How much of a worker's standard error is shown."""


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
    """`text`, and below it what the worker last wrote to its standard error."""
    tail = read_tail(log)
    return f"{text}; its last words:\n{tail}" if tail else text


def read_tail(log: Path) -> str:
    """Return the last whole lines of a log, at most `TAIL_BYTES`; empty if there is no such log."""
    data = output_log.read_tail(log, TAIL_BYTES + 1)
    if len(data) > TAIL_BYTES:
        _, _, data = data.partition(b"\n")
    return data.decode(errors="replace").strip()
