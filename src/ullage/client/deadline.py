"""A time limit of a caller."""

from __future__ import annotations

import time
from math import isnan

from ullage.model.error import invalid


class Deadline:
    """A time `seconds` from now; None is never.

    Raises:
        InvalidRequest: it is no number.

    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and (not isinstance(seconds, int | float) or isnan(seconds)):
            raise invalid("timeout", seconds, "a number of seconds is needed, or None for no limit")
        self._ends = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Return the seconds until then, at least 0; None for never."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())
