"""Which ends of a session a notice is sent of."""

from __future__ import annotations

from enum import StrEnum


class NotifyOn(StrEnum):
    """Which ends of a session are sent: all, or those with a task that did not succeed."""

    END = "end"
    FAIL = "fail"
