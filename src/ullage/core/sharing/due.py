"""When time alone changes a decision: the next cycle is due then, whatever else happens."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf


class DueTimes:
    """The times that a cycle at `now` asked about; all in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._to_come: list[float] = []

    def has_come(self, at: float) -> bool:
        """Return whether a time has come; if not, the next cycle is due then."""
        if at > self.now:
            self._to_come.append(at)
        return at <= self.now

    def wake_at(self, times: Iterable[float]) -> None:
        """Have the next cycle at these times, as far as they are to come."""
        self._to_come.extend(at for at in times if self.now < at < inf)

    def wake_after(self, seconds: float) -> None:
        """Have the next cycle after so many seconds, or at once."""
        self._to_come.append(self.now + seconds)

    @property
    def next(self) -> float | None:
        """When the next cycle is due; None if time alone changes nothing."""
        return min(self._to_come, default=None)
