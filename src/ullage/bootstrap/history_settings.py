"""The settings of the past: how long it is kept, and how long it counts."""

from __future__ import annotations

import msgspec

from ullage.model.duration import duration_text, parse_duration
from ullage.model.error import invalid
from ullage.model.history import Keeping
from ullage.model.past_use import HalfLife

_DAY_S = 86400.0

_HALF_LIVES = 10
"""Half-lives after which what is dropped of the history would have counted less than a thousandth."""


class HistorySection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the history is kept, in days, and how many rows of each of its tables; 0 keeps all.

    With `closed_sessions_days` closed sessions are deleted after that many days, with their tasks, results, events and
    logs; their rows in the history stay.
    """

    days: float = 365.0
    rows: int = 1_000_000
    closed_sessions_days: float | None = None

    def keeping(self) -> Keeping:
        """Return how long the past is kept.

        Raises:
            InvalidRequest: a number is below 0.

        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise invalid(f"history.{name}", value, "0 or more is needed")
        closed = self.closed_sessions_days
        return Keeping(
            self.days * _DAY_S or None, self.rows or None, closed_s=None if closed is None else closed * _DAY_S
        )


class FairShareSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fair share over time. With a `half_life`, such as "7d", past use changes the weights of queues and owners.

    The history must be kept for at least ten half-lives (`history.days`).
    """

    half_life: str | None = None

    def read(self, kept_s: float | None) -> HalfLife | None:
        """Return the half-life of past use, if there is one; the history is kept for `kept_s` seconds.

        Raises:
            InvalidRequest: it is no duration, too short, or too long for the history.

        """
        if self.half_life is None:
            return None
        found = HalfLife(parse_duration(self.half_life, "fair_share.half_life"))
        if kept_s is not None and kept_s < _HALF_LIVES * found.seconds:
            fix = f"the history is kept for {duration_text(kept_s)} (history.days); {_HALF_LIVES} half-lives are needed"
            raise invalid("fair_share.half_life", self.half_life, fix)
        return found
