"""Bodies of the use of cards over time."""

from __future__ import annotations

from ullage.wire.schema import View


class CardUseBody(View, frozen=True, kw_only=True):
    """The use of one card at each of the times of the `LoadBody`.

    `held` is the fraction that is given out, `compute` the fraction of the time in which the card worked, and
    `memory_bytes` what was in use on it; None where that is not known. `measured` says whether its driver measures it.
    """

    uuid: str
    held: list[float | None]
    compute: list[float | None]
    memory_bytes: list[int | None]
    measured: bool


class LoadBody(View, frozen=True, kw_only=True):
    """The use of all cards over the last hour, at the times `at` (seconds since the epoch)."""

    at: list[float]
    cards: list[CardUseBody]
