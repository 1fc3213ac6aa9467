"""The states of past sessions, and what their usage may be grouped by."""

from __future__ import annotations

from enum import StrEnum

DIMENSIONS = ("owner", "queue", "application")
"""What usage may be grouped by."""


class PastState(StrEnum):
    """The state of a session in the history: the first two are those of open sessions, the others say how it ended.

    A session that ended is failed if one of its tasks failed, else cancelled if one of them was cancelled. A lost one
    was open when its record was damaged.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCEED = "succeed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
