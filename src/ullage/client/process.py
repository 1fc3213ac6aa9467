"""The start times of processes, which distinguish processes that reuse a pid."""

from __future__ import annotations

from pathlib import Path

_START = 19
"""Position of the start time in /proc/PID/stat, counted after the name; see proc_pid_stat(5)."""


def started_at(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[_START - 1])
