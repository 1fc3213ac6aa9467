"""The states of a session."""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    """An Open session takes tasks; a Closed one never reopens."""

    OPEN = "open"
    CLOSED = "closed"


class Activity(StrEnum):
    """What a session does. It is shown as the state of a session, also where some of its tasks wait and others run."""

    RUNNING = "running"
    PENDING = "pending"
    IDLE = "idle"
    CLOSED = "closed"


OPEN_ACTIVITIES = tuple(each.value for each in Activity if each is not Activity.CLOSED)


def activity(state: SessionState, *, pending: int, running: int) -> Activity:
    """Return what a session with so many pending and running tasks does."""
    if state is SessionState.CLOSED:
        return Activity.CLOSED
    if running:
        return Activity.RUNNING
    return Activity.PENDING if pending else Activity.IDLE


NEVER = 253_370_764_800.0
"""The begin of a session that is held, in seconds since the epoch: the year 9999."""
