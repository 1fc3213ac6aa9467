"""Past use that decays: what was used counts half as much after each half-life."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log
from typing import NamedTuple

from ullage.model.error import invalid
from ullage.model.history import Stay
from ullage.model.resources import MILLI, Resources

LEAST_S = 60.0
"""The shortest half-life, in seconds."""


KEPT = 50
"""Half-lives after which nothing is left of a use: less than 1e-15 of it."""


@dataclass(frozen=True, slots=True)
class HalfLife:
    """A half-life in seconds.

    Raises:
        InvalidRequest: it is below `LEAST_S`.

    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= LEAST_S:
            raise invalid("fair_share.half_life", f"{self.seconds:g}s", f"at least {LEAST_S:g}s is needed")

    @property
    def steady_s(self) -> float:
        """What one unit leaves that was always used, in seconds."""
        return self.seconds / log(2)

    def left(self, age_s: float) -> float:
        """Return the part that is left after some seconds."""
        return float(0.5 ** (age_s / self.seconds))

    def of_span(self, lasted_s: float, age_s: float) -> float:
        """Return what is left of one unit used for `lasted_s` seconds, until `age_s` seconds ago."""
        return -expm1(-log(2) * lasted_s / self.seconds) * self.steady_s * self.left(age_s)


class ShareKey(NamedTuple):
    """A queue, or an owner in it; None is the queue itself."""

    queue: str
    owner: str | None = None


class DecayedUse(NamedTuple):
    """Seconds of cards and cores, and of bytes of memory, of which each second counts less the longer it is past."""

    card_s: float = 0.0
    core_s: float = 0.0
    memory_byte_s: float = 0.0

    def plus(self, other: DecayedUse) -> DecayedUse:
        """Return the sum."""
        return DecayedUse(
            self.card_s + other.card_s, self.core_s + other.core_s, self.memory_byte_s + other.memory_byte_s
        )

    def times(self, factor: float) -> DecayedUse:
        """Return the product."""
        return DecayedUse(self.card_s * factor, self.core_s * factor, self.memory_byte_s * factor)

    def dominant_s(self, total: Resources) -> float:
        """Return the largest part of what all nodes have, in seconds of all of it; what no node has is left out."""
        whole = (total.gpu_milli / MILLI, total.cpu_milli / MILLI, float(total.memory_bytes))
        return max((amount / most for amount, most in zip(self, whole, strict=True) if most), default=0.0)


def used_by(stay: Stay, half_life: HalfLife, until: float) -> DecayedUse:
    """Return what is left at `until` of the use of a stay, which goes on if it has not ended."""
    ended_at = until if stay.ended_at is None else min(stay.ended_at, until)
    lasted_s = max(0.0, ended_at - stay.started_at)
    left = half_life.of_span(lasted_s, until - ended_at)
    return DecayedUse(stay.cards * left, stay.cores * left, stay.memory_bytes * left)
