"""The log of a process: lines of keys and values on stderr.

    timestamp='2026-01-31T12:00:00.000000Z' level='info' event='server.ready' url='http://127.0.0.1:7480'

A line that cannot be written, as on a full disk, is dropped. A server in the background bounds its log.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ullage.bootstrap.bounded_log import is_standard_error, move_if_full

_bounded: list[Path] = []


def info(event: str, **facts: object) -> None:
    """Report normal operation."""
    _write("info", event, facts)


def warning(event: str, **facts: object) -> None:
    """Report a condition that an operator should check."""
    _write("warning", event, facts)


def error(event: str, **facts: object) -> None:
    """Report an error that ends something."""
    _write("error", event, facts)


def bound_size(path: Path) -> None:
    """Rename the file at `path` whenever it is full, if it is the standard error of this process."""
    _bounded[:] = [path] if is_standard_error(path) else []


def _write(level: str, event: str, facts: dict[str, object]) -> None:
    timestamp = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    parts = {"timestamp": timestamp, "level": level, "event": event, **facts}
    line = " ".join(f"{name}={fact!r}" for name, fact in parts.items())
    for path in _bounded:
        move_if_full(path)
    with suppress(OSError, AttributeError):  # a closed standard error is None
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
