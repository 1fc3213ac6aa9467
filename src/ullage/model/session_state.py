"""The states of a session."""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    """An Open session takes tasks; a Closed one never reopens."""

    OPEN = "open"
    CLOSED = "closed"
