"""What a process tells of itself: lines of keys and values on stderr."""

from __future__ import annotations

import sys

import structlog


def log_plainly() -> None:
    """Write what is logged from now on as one line each."""
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
