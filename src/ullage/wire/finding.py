"""What `ullage doctor` finds."""

from __future__ import annotations

from ullage.wire.schema import View

OK, WARN, BAD = "ok", "warn", "bad"


class Finding(View, frozen=True):
    """One check: its verdict (ok, warn or bad), what was found, and what mends it."""

    check: str
    verdict: str
    text: str
    fix: str = ""
