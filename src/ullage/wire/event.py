"""The body of an event."""

from __future__ import annotations

from typing import Any

from ullage.wire.schema import View


class EventBody(View, frozen=True, kw_only=True):
    """An event."""

    number: int
    at: float
    kind: str
    session: str | None
    code: int | None
    message: str
    data: dict[str, Any]
