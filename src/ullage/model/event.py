"""Events, for people and for clients that follow the server."""

from __future__ import annotations

from dataclasses import dataclass, field

BIND_FAILED = 1001
RETRY_LIMIT_REACHED = 1002
RECLAIMED = 1003
EVICTED = 1004


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is a fixed short name such as `session.created`; `data` holds its values."""

    number: int
    at: float
    kind: str
    session: str | None = None
    code: int | None = None
    message: str = ""
    data: dict[str, str | int | float | None] = field(default_factory=dict)
